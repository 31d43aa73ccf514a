#!/usr/bin/env bash
# Fails when a tracked C++ or CUDA file is not formatted as the pinned clang-format does it.
#   check_format.sh [--fix] [ROOT]
set -euo pipefail

mode=(--dry-run -Werror)
if [ "${1:-}" = --fix ]; then
  mode=(-i)
  shift
fi
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# Other versions format differently, so only this one will do.
formatter=clang-format-16
command -v "$formatter" >/dev/null || { echo "check_format: no $formatter: run deploy/setup.sh --dev" >&2; exit 1; }
mapfile -t files < <(git ls-files '*.h' '*.cc' '*.cu' '*.cuh')
[ ${#files[@]} -gt 0 ] || { echo "check_format: no file to check" >&2; exit 1; }
"$formatter" "${mode[@]}" "${files[@]}"
echo "check_format: ${#files[@]} files"
