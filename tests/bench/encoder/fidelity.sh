#!/usr/bin/env bash
# Measures what approximate attention does to a model's vectors, with the model's own weights.
#   tests/bench/encoder/fidelity.sh [--rounds N] MODEL_DIR TEXTS [KERNEL...]
# TEXTS has one text per line. Prints a table in Markdown, a row for each kernel: the mean and the
# least cosine of a text's vector to that of exact attention, how many of a text's nearest 5 and 10
# of TEXTS stay, and the time of the whole encoder as a multiple of exact attention's.
# KERNEL: clustered-C, improved-C (top-k 32) or improved-C-K, and behind a plus sign q (QUERY_SPACE;
# q2 with two iterations) and m (rest_mass QUERY; m16 with 16 rest_groups): improved-25-48+qm16;
# without any, a usual choice.
# Needs build/ with fidelity_bench. Texts should be as long as yours are: short ones lose little.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

rounds=5 arguments=()
while (($# > 0)); do
  case $1 in
    --rounds) rounds=${2:?--rounds needs a number}; shift ;;
    -h | --help) usage; exit 0 ;;
    -*) printf 'fidelity: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
if ((${#arguments[@]} < 2)); then
  usage >&2
  exit 2
fi
kernels=("${arguments[@]:2}")
if ((${#kernels[@]} == 0)); then
  kernels=(clustered-25 clustered-100 improved-25 improved-25-48 improved-25-64
    improved-25+qm improved-25-64+qm improved-50 improved-50-64 improved-100)
fi
bench=$(find "$root/build" -name fidelity_bench -type f -perm -u+x 2>/dev/null | head -n 1)
if [[ -z $bench ]]; then
  printf 'fidelity: build it first: cmake --build build --target fidelity_bench\n' >&2
  exit 1
fi
exec "$bench" --model="${arguments[0]}" --texts="${arguments[1]}" --rounds="$rounds" \
  "${kernels[@]}"
