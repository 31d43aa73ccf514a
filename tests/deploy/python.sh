#!/usr/bin/env bash
# Installs a Python with grpcio, the stock client of run.sh, beside what deploy/setup.sh installs.
#   tests/deploy/python.sh     prints the program
# Needs the folder .deps of deploy/setup.sh.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { printf 'python: error: %s\n' "$*" >&2; exit 1; }

# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"
uv=$root/.deps/venv/bin/uv
[ -x "$uv" ] || die "$root/.deps is missing or not complete: run deploy/setup.sh first"
folder=$(readlink -f "$root/.deps")/grpcio-$GRPCIO_VERSION
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
python=$folder/venv/bin/python
if [ ! -e "$folder/venv/.done" ]; then
  "$uv" venv -q --clear --python "$root/.deps/venv/bin/python" "$folder/venv"
  "$uv" pip install -q --python "$python" "grpcio==$GRPCIO_VERSION" ||
    die "cannot install from PyPI: is there a network?"
  touch "$folder/venv/.done"
fi
printf '%s\n' "$python"
