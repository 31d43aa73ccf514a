#!/usr/bin/env bash
# Runs tests/run.sh with every Python from 3.10 that is installed or that uv brings, with the oldest
# and the newest grpcio, protobuf and numpy that pyproject.toml allows, and with the libraries that
# castor.integrations and the drop-in are tested against, which are large.
#   matrix.sh [MINOR ...]    Pythons, by default: 3.10 3.11 3.12 3.13
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet uv

failed=0
try() { # $1: what; $2..: run.sh's arguments
  local what=$1
  shift
  printf '== %s\n' "$what"
  "$here/run.sh" "$@" || { printf 'FAILED: %s\n' "$what"; failed=1; }
}
[ $# -gt 0 ] || set -- 3.10 3.11 3.12 3.13
for minor in "$@"; do
  if ! python=$("$tools/bin/uv" python find "$minor" 2>/dev/null); then
    printf '== Python %s is not here\n' "$minor"
    continue
  fi
  try "Python $minor, newest" --python "$python"
  case $minor in
    # The oldest that have wheels for it.
    3.10 | 3.11) oldest=(grpcio==1.53.0 protobuf==4.25.0 numpy==1.23.2) ;;
    3.12) oldest=(grpcio==1.59.2 protobuf==4.25.0 numpy==1.26.0) ;;
    *) oldest=(grpcio==1.66.2 protobuf==4.25.0 numpy==2.1.0) ;;
  esac
  with=()
  for each in "${oldest[@]}"; do with+=(--with "$each"); done
  try "Python $minor, oldest" --python "$python" "${with[@]}"
done
python=$("$tools/bin/uv" python find 3.11)
with=()
for each in sentence-transformers langchain-core llama-index-core haystack-ai mteb matplotlib; do
  with+=(--with "$each")
done
try "with other libraries" --python "$python" "${with[@]}"
exit $failed
