#!/usr/bin/env bash
# TLS 1.3 against plaintext: the same load on one server of each, in turns. Prints requests/s and the
# server's processor time for each request, and with --profile where the difference goes.
#   tests/bench/tls.sh [--seconds N] [--rounds N] [--profile]
# Needs build/ with castor-server and castor-load, and openssl; --profile needs perf.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
server=$root/build/server/castor-server
load=$root/build/client/load/castor-load
seconds=5 rounds=3 profile=false
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --profile) profile=true; shift ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done

work=$(mktemp -d)
pids=()
stop() {
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=castor \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" \
  2>/dev/null
tls=(--tls-certificate "$work/cert.pem" --tls-key "$work/key.pem" --tls-min-version 1.3)
for kind in plain tls; do
  flags=() port=50180
  if [ $kind = tls ]; then flags=("${tls[@]}") port=50181; fi
  "$server" --listen 127.0.0.1:$port --metrics-listen off --device cpu --cpu-threads 1 \
    --cost-model-budget 0s "${flags[@]}" 2>"$work/$kind.log" &
  pids+=($!)
done
for kind in plain tls; do
  until grep -q listening "$work/$kind.log"; do sleep 0.1; done
done

# Seconds of processor time that a process has had.
cpu() { awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) / hz }' "/proc/$1/stat"; }

# $1: plain or tls; $2..: castor-load's flags. Prints requests/s and the server's us a request.
run() {
  local kind=$1 pid=${pids[0]} target=(--server 127.0.0.1:50180) before after
  shift
  if [ "$kind" = tls ]; then
    pid=${pids[1]}
    target=(--server 127.0.0.1:50181 --ca "$work/cert.pem")
  fi
  before=$(cpu "$pid")
  "$load" run "${target[@]}" --arrivals closed --callers 8 --warm-up 0s --duration "${seconds}s" \
    --json "$work/run.json" "$@" >/dev/null 2>"$work/load.log" || true
  after=$(cpu "$pid")
  python3 - "$work/run.json" "$before" "$after" "$seconds" <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
rate = run["summary"]["total"]["ok_rate"]
cpu = float(sys.argv[3]) - float(sys.argv[2])
each = 1e6 * cpu / (rate * float(sys.argv[4]))
print(f"{rate:9.1f} requests/s {each:9.1f} us of the server each")
PY
}

# Messages of 64 KiB and 8 MiB: three tensors of float32, dimension 64, in short sequences, so that
# moving them is most of the work.
for size in "64 KiB" "8 MiB"; do
  shape=(--attend 16 --sequences 683 --heads 1 --head-dim 64 --payloads 2)
  if [ "$size" = "64 KiB" ]; then shape=(--attend 17 --sequences 5 --heads 1 --head-dim 64); fi
  for _ in $(seq "$rounds"); do
    for kind in plain tls; do printf '%-6s %-5s %s\n' "$size" $kind "$(run $kind "${shape[@]}")"; done
  done
done

if $profile; then
  for kind in plain tls; do
    pid=${pids[0]}
    if [ $kind = tls ]; then pid=${pids[1]}; fi
    run $kind "${shape[@]}" >/dev/null &
    loader=$!
    perf record -q -o "$work/$kind.perf" -g -p "$pid" -- sleep "$((seconds - 1))" 2>/dev/null
    wait $loader
    for by in dso symbol; do
      printf '\n8 MiB, %s: where the server is, by %s\n' $kind $by
      perf report -i "$work/$kind.perf" --no-children -g none --sort $by 2>/dev/null |
        grep -v '^#' | grep -v '^$' | cut -c1-96 | sed -n 1,12p
    done
  done
fi
openssl speed -seconds 1 -evp aes-128-gcm -bytes 16384 2>/dev/null | tail -1
openssl speed -seconds 1 -evp aes-256-gcm -bytes 16384 2>/dev/null | tail -1
