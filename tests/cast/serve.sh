#!/usr/bin/env bash
# Serves what tests/cast/train.sh made with castor-server, classifies the held-out documents over a
# socket, and compares with training.
#   tests/cast/serve.sh OUT [DTYPE...]         OUT as for train.sh; default: float32
# Needs the Release build of tests/run.sh.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [ $# -eq 0 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
  sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 2
fi
out=$1
shift
[ $# -gt 0 ] || set -- float32
python=$("$root/tests/cast/install.sh")
for dtype in "$@"; do
  "$python" "$root/tests/cast/serve.py" "$root/build" "$out/cast" --dtype "$dtype"
done
