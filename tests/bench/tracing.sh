#!/usr/bin/env bash
# What traces cost: the same load on servers without traces, with 1 % sampled and with all, in
# turns, fresh servers each round.
#   tests/bench/tracing.sh [--seconds N] [--rounds N] [--base PROGRAM] [--only LOAD]
# Prints, for tiny and small attends and short texts, requests/s, the server's processor time for
# each request, and that of its thread `tracer` (medians of the rounds); and ratios to servers without
# traces. --base adds another castor-server, such as one without this code; --only measures one of
# the loads.
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
    *) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
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

# Nanoseconds that all threads of a process have run, and those of its thread `tracer` alone.
ran() {
  local thread
  for thread in "/proc/$1/task/"*; do
    echo "$(<"$thread/comm") $(<"$thread/schedstat")"
  done | awk '{ all += $(NF - 2) } $1 == "tracer" { own += $(NF - 2) } END { print all, own + 0 }'
}

# $1: a kind; $2..: castor-load's flags. Prints "requests/s us us-of-tracer".
run() {
  local kind=$1 before after
  shift
  before=$(ran "${pid[$kind]}")
  "${there[@]}" "$load" run --server "127.0.0.1:${port[$kind]}" --arrivals closed --callers 8 \
    --warm-up 0s --duration "${seconds}s" --json "$work/run.json" "$@" >/dev/null \
    2>"$work/load.log" || true
  after=$(ran "${pid[$kind]}")
  python3 - "$work/run.json" "$seconds" "$before" "$after" <<'PY'
import json, sys
requests = json.load(open(sys.argv[1]))["summary"]["total"]["ok_rate"] * float(sys.argv[2])
before, after = ([float(x) for x in text.split()] for text in sys.argv[3:])
each = [(now - then) / 1e3 / requests for then, now in zip(before, after)]
print(f"{requests / float(sys.argv[2]):.1f} {each[0]:.2f} {each[1]:.2f}")
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
    for kind in $(shuf -e "${kinds[@]}"); do
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
    what, round_, kind, *numbers = line.split()
    rows.setdefault((what, kind), {})[round_] = [float(number) for number in numbers]
def mean(values):
    values = list(values)
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.4f} ±{error:.4f}"
print("\nratios to the mean of the two servers without traces, over rounds, ± the standard error")
print(f"{'':8}{'traces':8}{'requests/s':>11}{'us each':>9}{'tracer':>8}  {'rate':16}  time")
for (what, kind), runs in rows.items():
    def ratio(round_, column):
        without = [rows[(what, other)][round_][column] for other in ("off", "again")]
        return runs[round_][column] / statistics.mean(without)
    medians = [statistics.median(numbers) for numbers in zip(*runs.values())]
    print(f"{what:8}{kind:8}{medians[0]:11.1f}{medians[1]:9.2f}{medians[2]:8.2f}"
          f"  {mean(ratio(r, 0) for r in runs)}  {mean(ratio(r, 1) for r in runs)}")
PY
