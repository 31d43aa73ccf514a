#!/usr/bin/env bash
# What traces cost: the same load on servers without traces, with 1 % sampled and with all, in
# turns, fresh servers each round.
#   tests/bench/tracing.sh [--seconds N] [--rounds N] [--base PROGRAM] [--only LOAD]
# Prints, for tiny and small attends and short texts, requests/s and the server's processor time for
# each request, the medians of the rounds, and of their ratios to the server without traces. --base
# adds another castor-server, such as one without this code; --only measures one of the loads.
# Needs build/ with castor-server, castor-load and span_sink, and .deps/minilm. On two processors or
# more the server has the first for itself; load and collector share the second.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
load=$root/build/client/load/castor-load
sink=$root/build/tests/bench/span_sink
model=$root/.deps/minilm
seconds=5 rounds=7 base="" loads=(tiny attend encode)
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --base) base=$2; shift 2 ;;
    --only) loads=("$2"); shift 2 ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done

here=() there=()
if [ "$(nproc)" -ge 2 ]; then here=(taskset -c 0) there=(taskset -c 1); fi

work=$(mktemp -d)
sink_pid=
declare -A pid port
stop() {
  kill "$sink_pid" "${pid[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT

"${there[@]}" "$sink" >"$work/sink" &
sink_pid=$!
until [ -s "$work/sink" ]; do sleep 0.1; done
collector=$(head -1 "$work/sink")

# "again" is a second server without traces: what is not a cost of traces differs there, too.
kinds=(off again 1% 100%)
[ -z "$base" ] || kinds=(base "${kinds[@]}")
# Fresh servers: one process is faster than the next by where its memory happens to lie.
start() {
  local kind flags server next=50190
  for kind in "${kinds[@]}"; do
    flags=() server=$root/build/server/castor-server
    case $kind in
      base) server=$base ;;
      1%) flags=(--trace-endpoint "$collector" --trace-sample 0.01) ;;
      100%) flags=(--trace-endpoint "$collector" --trace-sample 1) ;;
    esac
    "${here[@]}" "$server" --listen "127.0.0.1:$next" --metrics-listen off --device cpu \
      --cpu-threads 1 --cost-model-budget 0s --model "minilm=$model" "${flags[@]}" \
      2>"$work/$next.log" &
    pid[$kind]=$! port[$kind]=$next
    until grep -q listening "$work/$next.log"; do sleep 0.1; done
    next=$((next + 1))
  done
}
end() {
  kill "${pid[@]}"
  wait "${pid[@]}" 2>/dev/null || true
  pid=()
}

# Nanoseconds that the threads of a process have run.
ran() { cat "/proc/$1/task/"*/schedstat 2>/dev/null | awk '{ sum += $1 } END { print sum }'; }

# $1: a kind; $2..: castor-load's flags. Prints "requests/s us".
run() {
  local kind=$1 before after
  shift
  before=$(ran "${pid[$kind]}")
  "${there[@]}" "$load" run --server "127.0.0.1:${port[$kind]}" --arrivals closed --callers 8 \
    --warm-up 0s --duration "${seconds}s" --json "$work/run.json" "$@" >/dev/null \
    2>"$work/load.log" || true
  after=$(ran "${pid[$kind]}")
  python3 - "$work/run.json" "$before" "$after" "$seconds" <<'PY'
import json, sys
rate = json.load(open(sys.argv[1]))["summary"]["total"]["ok_rate"]
ns = int(float(sys.argv[3])) - int(float(sys.argv[2]))
print(f"{rate:.1f} {ns / 1e3 / (rate * float(sys.argv[4])):.2f}")
PY
}

shape() { # LOAD
  case $1 in
    tiny) echo --attend 16 --heads 1 --head-dim 64 ;;
    attend) echo --attend 128 --heads 8 --head-dim 64 ;;
    encode) echo --encode 8 ;;
  esac
}

for round in $(seq "$rounds"); do
  start
  for what in "${loads[@]}"; do
    read -ra flags <<<"$(shape "$what")"
    for kind in "${kinds[@]}"; do
      (seconds=1 run "$kind" "${flags[@]}" >/dev/null)  # to warm up
      printf '%s %s %s %s\n' "$what" "$round" "$kind" "$(run "$kind" "${flags[@]}")" | tee -a "$work/all"
    done
  done
  end
done

python3 - "$work/all" <<'PY'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    what, round_, kind, rate, us = line.split()
    rows.setdefault((what, kind), {})[round_] = (float(rate), float(us))
print(f"\n{'':8}{'traces':8}{'requests/s':>12}{'us each':>10}{'rate':>9}{'time':>9}   (ratios to off: median, range)")
for (what, kind), runs in rows.items():
    off = rows[(what, "off")]
    rates = [runs[r][0] / off[r][0] for r in runs]
    times = [runs[r][1] / off[r][1] for r in runs]
    print(f"{what:8}{kind:8}{statistics.median(v[0] for v in runs.values()):12.1f}"
          f"{statistics.median(v[1] for v in runs.values()):10.2f}"
          f"{statistics.median(rates):9.4f}{statistics.median(times):9.4f}"
          f"   rate {min(rates):.3f}-{max(rates):.3f}, time {min(times):.3f}-{max(times):.3f}")
PY
