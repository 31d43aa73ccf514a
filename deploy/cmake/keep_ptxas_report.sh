#!/usr/bin/env bash
# Compiler launcher of CUDA files: runs the command and keeps ptxas's report on each kernel next to
# the object, for tests/checks/check_ptxas.sh, instead of printing it.
set -euo pipefail

object=
previous=
for argument in "$@"; do
  if [ "$previous" = -o ]; then object=$argument; fi
  previous=$argument
done
report=$object.ptxas
rc=0
"$@" 2>"$report" || rc=$?
grep -vE '^ptxas info|bytes stack frame' "$report" >&2 || true
exit "$rc"
