#!/usr/bin/env bash
# Runs shellcheck over every tracked shell script.
#   check_shell.sh [ROOT]
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
mapfile -t files < <(git ls-files '*.sh' .ci/run)
[ ${#files[@]} -gt 0 ] || { echo "check_shell: no file to check" >&2; exit 1; }
shellcheck --external-sources "${files[@]}"
echo "check_shell: ${#files[@]} files"
