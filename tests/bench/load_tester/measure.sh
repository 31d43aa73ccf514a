#!/usr/bin/env bash
# Measures castor-load against truths that are known in advance, and against other load generators,
# and writes a dated log under tests/bench/logs/. Ends with 1 if a bound was missed.
#   tests/bench/load_tester/measure.sh [--quick] [--only PART]...    about 60 minutes; --quick: 12
# PART: stalls, arrivals, rate, search, verdicts, counts, reports, overload, isolation. With --quick
# or --only nothing is written but to the terminal. Needs the Release build of tests/run.sh, two
# cores, a quiet machine, and Go; installs the others (peers.sh).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
cd "$root"
die() { printf 'measure: error: %s\n' "$*" >&2; exit 1; }

flags=() logged=true
while [ $# -gt 0 ]; do
  case $1 in
    --quick) flags+=(--quick); logged=false ;;
    --only) [ $# -gt 1 ] || die "--only needs a part"; flags+=(--only "$2"); logged=false; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) printf 'measure: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
  esac
  shift
done
for program in client/load/castor-load server/castor-server tests/bench/castor-scripted-server; do
  [ -x "build/$program" ] || die "build/$program is missing: run tests/run.sh first"
done
[ "$(nproc)" -ge 2 ] || die "needs two cores: one for the client, one for the server"

peers=$("$here/peers.sh")
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
measure=(python3 "$here/measure.py" --build build --peers "$peers" --commit "$commit")
if ! $logged; then
  "${measure[@]}" "${flags[@]}"
  exit
fi
mkdir -p tests/bench/logs
log=tests/bench/logs/$(date -u +%Y-%m-%d)-$commit-load-tester.md
"${measure[@]}" "${flags[@]}" | tee "$log" # pipefail: a missed bound ends this with 1
printf '\n== written to %s\n' "$log" >&2
