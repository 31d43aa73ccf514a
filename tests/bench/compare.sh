#!/usr/bin/env bash
# Compares two builds, in turn in one run, and prints their ratios: does a change cost time?
#   tests/bench/compare.sh BEFORE AFTER [--turns N]
# BEFORE and AFTER are build folders (Release) of two checkouts that hold the benchmarks. N is 5
# unless given; a turn takes a minute and a half. Keep the machine quiet meanwhile.
set -euo pipefail

usage() { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() { printf 'compare: error: %s\n' "$*" >&2; exit 1; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
builds=() turns=5
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --turns) turns=$2; shift ;;
    *) builds+=("$(cd "$1" && pwd)") ;;
  esac
  shift
done
[ ${#builds[@]} -eq 2 ] || { usage >&2; exit 2; }

out=$(mktemp -d)
server=
stop_server() {
  [ -n "$server" ] || return 0
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=
}
trap 'stop_server; rm -rf "$out"' EXIT

# castor-server sets this for itself (server/lifecycle/environment.h); bare engines get the same.
export GOMP_SPINCOUNT=3000

measure() { # $1: what runs before it, such as an environment; $2: program; $3: JSON; $4..: flags
  # shellcheck disable=SC2086
  $1 "$2" --benchmark_out_format=json --benchmark_out="$3" "${@:4}" >/dev/null 2>&1 ||
    die "$2 failed"
}

for turn in $(seq "$turns"); do
  for side in 0 1; do
    # The second run may meet a slower or faster machine: the builds take turns at it.
    side=$(((side + turn) % 2))
    build=${builds[$side]}
    json=$out/$side.$turn
    printf 'turn %d of %d: %s\n' "$turn" "$turns" "$build" >&2
    measure 'env OMP_NUM_THREADS=1' "$build/tests/bench/approximate_bench" "$json.one_thread.json" \
      --benchmark_filter='/16384/|^cast/.*gaussian/4096' --benchmark_min_time=0.05
    measure '' "$build/tests/bench/attention_bench" "$json.exact.json" \
      --benchmark_filter='cpu-avx.*/8/64/' --benchmark_min_time=0.1
    measure '' "$build/tests/unit/loop/engine_overhead_bench" "$json.overhead.json" \
      --benchmark_min_time=0.5
    "$build/server/castor-server" --listen 127.0.0.1:0 --metrics-listen off --device cpu \
      --shared-memory 2>"$out/server.log" &
    server=$!
    for _ in $(seq 300); do
      grep -q ' listening ' "$out/server.log" && break
      sleep 0.1
    done
    address=$(sed -n 's/.* listening .*grpc=\([^ ]*\).*/\1/p' "$out/server.log")
    [ -n "$address" ] || die "$build/server/castor-server did not start"
    measure '' "$build/tests/bench/serving_bench" "$json.serving.json" --server="$address" \
      --benchmark_filter='fp32|Latency' --benchmark_min_time=1
    stop_server
  done
done

python3 "$here/report_compare.py" "$out" "${builds[@]}"
