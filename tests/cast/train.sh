#!/usr/bin/env bash
# Trains a small CAST encoder on this CPU to tell kinds of files apart (tests/cast/train.py), and
# with --compare exact attention in the same body, and times both.
#   tests/cast/train.sh [--compare] [--steps N] OUT
# 1,200 steps take about 5 minutes on 2 cores, and 20 with --compare.
# Writes OUT/cast, which castor-server serves (tests/cast/serve.sh), OUT/exact, OUT/speed.md.
# Needs deploy/setup.sh --cuda, whose LibTorch it trains with, and 0.1 GB in ~/.cache/castor. After
# deploy/setup.sh without --cuda it installs a torch of its own there: 4.6 GB from PyPI, or with
# UV_TORCH_BACKEND=cpu PyTorch's smaller build without CUDA, from PyTorch's own index.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
compare=false steps=1200 out=
while [ $# -gt 0 ]; do
  case $1 in
    --compare) compare=true ;;
    --steps) steps=${2:-}; shift ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) printf 'train: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
if [ -z "$out" ]; then
  printf 'train: give the folder to write (see --help)\n' >&2
  exit 2
fi

python=$("$root/tests/cast/install.sh")
"$python" "$root/tests/cast/train.py" "$out/cast" --steps "$steps"
if $compare; then
  "$python" "$root/tests/cast/train.py" "$out/exact" --steps "$steps" --attention exact
  "$python" "$root/tests/cast/measure.py" "$out/speed.md"
fi
