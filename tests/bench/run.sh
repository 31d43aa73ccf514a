#!/usr/bin/env bash
# Measures what README claims and writes a dated log under tests/bench/logs/. Ratios are between
# things measured alternately in one run, because absolute times on a shared machine mean little.
#   tests/bench/run.sh [--quick]     about six minutes; --quick: two, for a quick look
# Needs the Release build of tests/run.sh. Installs sentence-transformers into the folder of
# deploy/setup.sh for the comparison (about 5 GB with LibTorch's own dependencies).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

repetitions=5 min_time=2 kernel_time=0.1 seconds=15
for arg in "$@"; do
  case $arg in
    --quick) repetitions=3 min_time=0.5 kernel_time=0.05 seconds=5 ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) printf 'bench: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
  esac
done
die() { printf 'bench: error: %s\n' "$*" >&2; exit 1; }
say() { printf '\n== %s\n' "$*" >&2; }

bench=build/tests/bench
for program in serving_bench encoding_bench attention_bench; do
  [ -x "$bench/$program" ] || die "$bench/$program is missing: run tests/run.sh first"
done

say "setting up"
deploy/setup.sh --model >&2
python=.deps/sentence-transformers/bin/python
if [ ! -x "$python" ]; then
  say "installing sentence-transformers"
  # shellcheck source=deploy/versions.env
  source deploy/versions.env
  .deps/venv/bin/uv venv -q .deps/sentence-transformers
  .deps/venv/bin/uv pip install -q --python "$python" "torch==$TORCH_VERSION" \
    "sentence-transformers==$SENTENCE_TRANSFORMERS_VERSION"
fi

out=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill -TERM "$server" 2>/dev/null || true
  rm -rf "$out"
}
trap cleanup EXIT

say "starting castor-server"
build/server/castor-server --listen 127.0.0.1:0 --metrics-listen off --device cpu --shared-memory \
  --model minilm=.deps/minilm 2>"$out/server.log" &
server=$!
for _ in $(seq 300); do
  grep -q ' listening ' "$out/server.log" && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
address=$(sed -n 's/.* listening .*grpc=\([^ ]*\).*/\1/p' "$out/server.log")
[ -n "$address" ] || { cat "$out/server.log" >&2; die "the server did not start"; }

measure() { # $1: program; $2..: its flags
  local program=$1
  shift
  "$bench/$program" --benchmark_min_time="$min_time" --benchmark_out_format=json \
    --benchmark_out="$out/$program.json" "$@" >&2
}
# Interleaved in random order, so that drift in the machine's speed affects all alike.
interleaved=(--benchmark_repetitions="$repetitions" --benchmark_enable_random_interleaving=true)

# castor-server sets this for itself (server/lifecycle/environment.h); both engines get the same.
export GOMP_SPINCOUNT=3000

say "server against bare engine"
measure serving_bench "${interleaved[@]}" --server="$address"

say "encoder against sentence-transformers, in turn"
for turn in 1 2 3; do
  measure encoding_bench --server="$address" --texts=tests/bench/encoder/encoder_texts.txt
  mv "$out/encoding_bench.json" "$out/encoding_bench.$turn.json"
  "$python" tests/bench/encoder/sentence_transformers_bench.py .deps/minilm --seconds "$seconds" \
    2>/dev/null >"$out/sentence_transformers.$turn.json"
done

say "attention kernels against LibTorch's"
min_time=$kernel_time
measure attention_bench "${interleaved[@]}" --benchmark_filter=-cpu-portable

kill -TERM "$server"
wait "$server" || die "the server ended with exit code $?"
server=

mkdir -p tests/bench/logs
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
log=tests/bench/logs/$(date -u +%Y-%m-%d)-$commit.md
python3 tests/bench/report.py "$out" "$commit" | tee "$log"
say "written to $log"
