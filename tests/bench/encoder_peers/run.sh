#!/usr/bin/env bash
# Compares Castor's encoder with other runtimes on this CPU and writes a table in Markdown: tokens
# per second of 512 mixed texts, the median time of one text of 12 tokens, memory, and cosines.
#   tests/bench/encoder_peers/run.sh [--quick] [--type=fp32|bf16|int8] [OUT.md]
# takes 15 minutes (--quick: 4), or an hour (25) where peers are slow in bfloat16. With --type it
# compares only those of one type.
# All contenders are loaded at once and measured in turn, in an order that changes each round, since
# absolute times on a shared machine mean little. Needs the Release build of tests/run.sh and the
# model of deploy/setup.sh. Installs the others into ~/.cache/castor (about 1.5 GB).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cd "$root"

rounds=7 out=/dev/stdout only=()
for arg in "$@"; do
  case $arg in
    --quick) rounds=2 ;;
    --type=*) only=("$arg") ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) printf 'encoder_peers: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
    *) out=$arg ;;
  esac
done

python=$(tests/bench/encoder_peers/install.sh)
exec "$python" tests/bench/encoder_peers/compare.py --rounds "$rounds" --out "$out" \
  "${only[@]}"
