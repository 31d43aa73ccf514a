#!/usr/bin/env bash
# Checks deploy/monitoring: the rules and their tests with promtool; that each alert has a firing
# case, a silent one and a runbook entry; that every metric which rules and dashboards name is
# exported by a server; and that the dashboards are valid, and what their script writes.
#   check.sh SERVER | PAGE   a castor-server, which is started, or its /metrics in a file
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
subject=${1:-build/server/castor-server}
command -v promtool >/dev/null || PATH=$PWD/.deps/bin:$PATH

work=$(mktemp -d)
server=
# shellcheck disable=SC2317 # called by the trap
clean_up() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap clean_up EXIT

# A server with all that has series of its own: a model, certificates and callers.
scrape() {
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -days 30 \
    -subj /CN=localhost 2>/dev/null
  # A file of callers; nobody uses the token.
  "$subject" token checker --token-file "$work/token" --add-to "$work/callers.toml"
  "$subject" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --cost-model-budget 0 \
    --device cpu --model "tiny=$PWD/tests/golden/encoder/tiny_bert" --log-format json \
    --tls-certificate "$work/cert.pem" --tls-key "$work/key.pem" \
    --auth-tokens "$work/callers.toml" 2>"$work/log" &
  server=$!
  local address=
  for _ in $(seq 300); do
    address=$(sed -n 's/.*"metrics":"\([^"]*\)".*/\1/p' "$work/log" | head -n 1)
    [ -z "$address" ] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  if [ -z "$address" ]; then
    cat "$work/log" >&2
    echo "check_monitoring: the server did not start" >&2
    exit 1
  fi
  curl -sf "http://$address/metrics" >"$work/page"
}

promtool check rules deploy/monitoring/rules/*.yaml >"$work/rules" 2>&1 || {
  cat "$work/rules" >&2
  exit 1
}
# Each file by itself, at once.
tests=()
for file in tests/monitoring/rules/*.yaml; do
  promtool test rules "$file" >"$work/$(basename "$file").out" 2>&1 &
  tests+=("$!")
done

if [ -x "$subject" ]; then
  scrape
  page=$work/page
else
  page=$subject
fi
promtool check metrics <"$page"
/usr/bin/python3 deploy/monitoring/make_dashboards.py --check
/usr/bin/python3 tests/monitoring/check.py "$page"

failed=false
for test in "${tests[@]}"; do wait "$test" || failed=true; done
if $failed; then
  cat "$work"/*.yaml.out >&2
  exit 1
fi
echo "check_monitoring: $(grep -c 'alertname:' tests/monitoring/rules/*.yaml |
  awk -F: '{ n += $2 } END { print n }') cases of alerts"
