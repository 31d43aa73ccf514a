#!/usr/bin/env bash
# Installs what castor-load is measured against and checked with, beside what deploy/setup.sh
# installs: ghz, a Python with grpcio, and readers of its reports.
#   tests/bench/load_tester/peers.sh     prints the folder: bin/ghz, venv/bin/python
# Needs the folder .deps of deploy/setup.sh, and Go for ghz.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
case ${1:-} in
  '') ;;
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) printf 'peers: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
esac
die() { printf 'peers: error: %s\n' "$*" >&2; exit 1; }
say() { printf 'peers: %s\n' "$*" >&2; }

# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"
uv=$root/.deps/venv/bin/uv
[ -x "$uv" ] || die "$root/.deps is missing or not complete: run deploy/setup.sh first"
pins=$GHZ_VERSION-$GRPCIO_VERSION-$HDRHISTOGRAM_VERSION-$JSONSCHEMA_VERSION
pins=$pins-$PROMETHEUS_CLIENT_VERSION
folder=$(readlink -f "$root/.deps")/load-peers-$pins
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9

if [ ! -x "$folder/bin/ghz" ]; then
  go=$("$root/deploy/go.sh") || die "ghz is built with Go, and none can be installed"
  say "building ghz $GHZ_VERSION"
  GOFLAGS=-mod=mod GOBIN=$folder/bin "$go" install "github.com/bojand/ghz/cmd/ghz@v$GHZ_VERSION" \
    >"$folder/ghz.log" 2>&1 || { tail -n 15 "$folder/ghz.log" >&2; die "cannot build ghz"; }
fi

python=$folder/venv/bin/python
if [ ! -e "$folder/venv/.done" ]; then
  say "installing grpcio $GRPCIO_VERSION, and readers of reports"
  "$uv" venv -q --clear --python "$root/.deps/venv/bin/python" "$folder/venv"
  "$uv" pip install -q --python "$python" "grpcio==$GRPCIO_VERSION" \
    "hdrhistogram==$HDRHISTOGRAM_VERSION" "jsonschema==$JSONSCHEMA_VERSION" \
    "prometheus-client==$PROMETHEUS_CLIENT_VERSION" ||
    die "cannot install from PyPI: is there a network?"
  touch "$folder/venv/.done"
fi
printf '%s\n' "$folder"
