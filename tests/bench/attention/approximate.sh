#!/usr/bin/env bash
# Measures the approximate kernels on this machine's processor and writes a dated log of ratios under
# tests/bench/logs/: our kernels, LibTorch's SDPA and the clustered paper's own kernels in one run.
#   tests/bench/attention/approximate.sh [--quick]   about 4 minutes
# Needs the Release build of tests/run.sh. Installs the authors' kernels (pytorch-fast-transformers,
# compiled here, about 5 minutes) into the folder of deploy/setup.sh.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cd "$root"

repetitions=9 min_time=0.3
for arg in "$@"; do
  case $arg in
    --quick) repetitions=3 min_time=0.1 ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) printf 'bench: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
  esac
done
die() { printf 'bench: error: %s\n' "$*" >&2; exit 1; }
say() { printf '\n== %s\n' "$*" >&2; }

bench=build/tests/bench
[ -x "$bench/approximate_bench" ] ||
  die "$bench/approximate_bench is missing: run tests/run.sh first"

say "setting up"
deploy/setup.sh >&2
# shellcheck source=deploy/versions.env
source deploy/versions.env
environment=.deps/fast-transformers
python=$environment/bin/python
uv=.deps/venv/bin/uv
[ -x "$python" ] || "$uv" venv -q --python .deps/venv/bin/python "$environment"
if ! "$python" -c 'import torch' 2>/dev/null; then
  say "installing LibTorch's Python"
  "$uv" pip install -q --python "$python" "torch==$TORCH_VERSION" numpy setuptools wheel ninja
fi
if ! "$python" -c 'import fast_transformers.attention' 2>/dev/null; then
  say "compiling the clustered paper's kernels"
  PATH=$root/$environment/bin:$PATH "$uv" pip install -q --python "$python" --no-build-isolation \
    "pytorch-fast-transformers==$FAST_TRANSFORMERS_VERSION"
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
log=tests/bench/logs/$(date -u +%Y-%m-%d)-$commit-approximate
mkdir -p tests/bench/logs

say "kernels against LibTorch's SDPA"
"$bench/approximate_bench" --benchmark_min_time="$min_time" --benchmark_out_format=json \
  --benchmark_out="$out/approximate_bench.json" --benchmark_repetitions="$repetitions" \
  --benchmark_enable_random_interleaving=true --benchmark_filter=-portable >&2

say "the clustered paper's own kernels"
"$python" tests/bench/attention/fast_transformers_bench.py >"$out/fast_transformers.jsonl"

python3 tests/bench/attention/report_approximate.py "$out" "$commit" | tee "$log.md"
say "written to $log.md"
