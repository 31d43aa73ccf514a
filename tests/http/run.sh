#!/usr/bin/env bash
# Calls the HTTP API with clients that others wrote, of today and of a year ago, and compares answers
# with the models' own libraries. Ends with a count; exits 1 if a call failed.
#
#   run.sh [--server PATH]    default: build/server/castor-server
#
# Needs .deps (deploy/setup.sh --dev --model); calls from Node and Go where those are installed. What
# it installs goes to ~/.cache/castor/http-clients: 1.2 GB.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"
server=$root/build/server/castor-server
if [ "${1:-}" = --server ] && [ $# -eq 2 ]; then
  server=$(realpath "$2")
elif [ $# -gt 0 ]; then
  printf 'usage: run.sh [--server PATH]\n' >&2
  exit 2
fi

folder=${XDG_CACHE_HOME:-$HOME/.cache}/castor/http-clients
uv=$root/.deps/venv/bin/uv

# Makes a virtual environment without Torch, and with nothing that is newer than a day.
venv() { # $1: its name; $2: the day; the rest: what it has
  local name=$1 day=$2
  shift 2
  [ "$*" != "$(cat "$folder/$name/has" 2>/dev/null)" ] || return 0
  printf 'run.sh: installing packages of %s\n' "$day" >&2
  "$uv" venv --quiet --clear --python "$root/.deps/venv/bin/python" "$folder/$name"
  echo torch >"$folder/torch"
  "$uv" pip install --quiet --system-certs --python "$folder/$name/bin/python" \
    --exclude-newer "$day" --excludes "$folder/torch" "$@"
  echo "$*" >"$folder/$name/has"
}
mapfile -t packages < <(grep -e == "$here/requirements.txt")
venv new 2026-11-28 "${packages[@]}" "transformers==$TRANSFORMERS_VERSION" \
  "sentence-transformers==$SENTENCE_TRANSFORMERS_VERSION"
mapfile -t packages < <(sed -n '/huggingface-api-haystack/d; s/==.*//p' "$here/requirements.txt")
venv old 2025-11-28 "${packages[@]}"
# Torch is LibTorch's where that has all of its libraries, as in tests/cast/install.sh.
link=$(echo "$folder"/new/lib/python3*/site-packages)/libtorch.pth
echo "$root"/.deps/venv/lib/python3*/site-packages >"$link"
if ! "$folder/new/bin/python" -c 'import torch' 2>/dev/null; then
  rm "$link"
  "$uv" pip install --quiet --system-certs --python "$folder/new/bin/python" "torch==$TORCH_VERSION"
fi

sdks=()
if command -v npm >/dev/null; then
  mkdir -p "$folder/node"
  cp "$here"/node/* "$folder/node"
  (cd "$folder/node" && npm install --silent --no-package-lock --prefer-offline)
  for name in openai openai-old; do
    version=$(node -p "require('$folder/node/node_modules/$name/package.json').version")
    sdks+=(--sdk "openai $version for Node=node $folder/node/sdk.mjs $name")
  done
else
  printf 'skipped: openai for Node, which is not here\n'
fi
export GOTOOLCHAIN=local
if cd "$here/go" && go list -m >/dev/null 2>&1; then # not if it is older than go.mod wants
  cp go.mod go.sum "$folder"
  for version in "$(go list -m -f '{{.Version}}' github.com/openai/openai-go/v3)" v3.8.1; do
    go get -modfile="$folder/go.mod" "github.com/openai/openai-go/v3@$version" 2>/dev/null
    go build -modfile="$folder/go.mod" -o "$folder/sdk-$version" .
    sdks+=(--sdk "openai ${version#v} for Go=$folder/sdk-$version")
  done
else
  printf 'skipped: openai for Go, which is not here or too old\n'
fi

export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
"$folder/new/bin/python" -B "$here/run.py" --server "$server" \
  --python "$folder/new/bin/python" --python "$folder/old/bin/python" "${sdks[@]}"
