#!/usr/bin/env bash
# Draws the dashboards from a real run: a server under a mixed load, a Prometheus that scrapes it and
# evaluates the rules, every query of every panel, and a screenshot of each dashboard.
#   run.sh OUT [MINUTES]   OUT: a new folder for pages and screenshots; 4 minutes of load by default
# Needs a built tree, and Debian's prometheus and chromium. Fails if a query has no data.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:?usage: run.sh OUT [MINUTES]}
minutes=${2:-4}
server_program=build/server/castor-server
load_program=build/client/load/castor-load
for program in prometheus promtool chromium openssl curl "$server_program" "$load_program"; do
  command -v "$program" >/dev/null || { echo "run.sh: there is no $program" >&2; exit 1; }
done
mkdir -p "$out"
out=$(realpath "$out")

work=$(mktemp -d)
started=()
# shellcheck disable=SC2317 # called by the trap
clean_up() {
  for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap clean_up EXIT

openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -days 30 \
  -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>/dev/null
model=tests/golden/encoder/tiny_bert
[ ! -e .deps/minilm ] || model=.deps/minilm
"$server_program" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --device cpu --log-format json \
  --model "encoder=$model" --tls-certificate "$work/cert.pem" --tls-key "$work/key.pem" \
  --fidelity-share 0.5 --max-queued-requests 200 --max-queued-time 3s 2>"$work/server.log" &
started+=("$!")
address_of() { sed -n "s/.*\"$1\":\"\([0-9.]*:[0-9]*\)\".*/\1/p" "$work/server.log" | head -n 1; }
for _ in $(seq 600); do
  [ -z "$(address_of metrics)" ] || break
  sleep 0.1
done
grpc=$(address_of grpc)
metrics=$(address_of metrics)
echo "server: grpc=$grpc metrics=$metrics, model ${model##*/}"

port=$(/usr/bin/python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1])')
cp -r deploy/monitoring/rules "$work/rules"
sed -e 's/scrape_interval: 15s/scrape_interval: 2s/; s/evaluation_interval: 30s/evaluation_interval: 5s/' \
  -e "s/castor-1:9464, castor-2:9464/\"$metrics\"/" deploy/monitoring/prometheus.example.yaml \
  >"$work/prometheus.yaml"
prometheus --config.file "$work/prometheus.yaml" --storage.tsdb.path "$work/data" \
  --web.listen-address "127.0.0.1:$port" >"$work/prometheus.log" 2>&1 &
started+=("$!")
prometheus=http://127.0.0.1:$port

seconds=$((minutes * 60))
send=("$load_program" run --workload tests/monitoring/workload.toml --server "$grpc" --tls
  --ca "$work/cert.pem" --no-metrics --quiet)
"${send[@]}" --duration "${seconds}s" >"$work/load.txt" 2>&1 &
load=$!
while kill -0 "$load" 2>/dev/null; do
  "${send[@]}" --rate 130 --warm-up 0s --duration 5s >/dev/null 2>&1 || true
  sleep 40
done &
started+=("$!")
# Meanwhile somebody does not speak TLS.
while kill -0 "$load" 2>/dev/null; do
  (printf 'PRI * HTTP/2.0\r\n\r\n' >"/dev/tcp/${grpc/://}") 2>/dev/null || true
  sleep 3
done
wait "$load" || true # its verdict is about objectives, which this workload misses on purpose
cat "$work/load.txt"

echo
echo "warnings of the server:"
sed -n 's/.*"level":"\(warning\|error\)"/\1/p' "$work/server.log" | cut -c1-160 | sort | uniq -c
echo
echo "alerts:"
curl -s "$prometheus/api/v1/alerts" | /usr/bin/python3 -c 'import json, sys
for alert in json.load(sys.stdin)["data"]["alerts"]:
    print(" ", alert["labels"]["alertname"], alert["state"])' | sort | uniq -c
echo
failed=false
/usr/bin/python3 tests/monitoring/render.py --prometheus "$prometheus" --out "$out" \
  --minutes "$minutes" || failed=true
for page in "$out"/*.html; do
  name=${page%.html}
  chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync \
    --user-data-dir="$work/chromium" --hide-scrollbars \
    --window-size="1472,$(cat "$name.height")" --screenshot="$name.png" "file://$page" \
    >/dev/null 2>&1
  rm "$name.height"
  # A quarter of the size, if it is there.
  ! command -v pngquant >/dev/null || pngquant --force --ext .png --speed 1 32 "$name.png"
done
if $failed; then exit 1; fi
echo "every query of every panel has data"
