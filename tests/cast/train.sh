#!/usr/bin/env bash
# Trains a small CAST encoder on this CPU to tell kinds of files apart (tests/cast/train.py), and
# with --compare exact attention in the same body, and times both.
#   tests/cast/train.sh [--compare] OUT        about 5 minutes on 2 cores; --compare: 20
# Writes OUT/cast, which castor-server serves (tests/cast/serve.sh), OUT/exact, OUT/speed.md.
# Needs deploy/setup.sh, whose LibTorch it trains with.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
compare=false out=
for arg in "$@"; do
  case $arg in
    --compare) compare=true ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) printf 'train: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
    *) out=$arg ;;
  esac
done
if [ -z "$out" ]; then
  printf 'train: give the folder to write (see --help)\n' >&2
  exit 2
fi

python=$("$root/tests/cast/install.sh")
"$python" "$root/tests/cast/train.py" "$out/cast" --steps 1200
if $compare; then
  "$python" "$root/tests/cast/train.py" "$out/exact" --steps 1200 --attention exact
  "$python" "$root/tests/cast/measure.py" "$out/speed.md"
fi
