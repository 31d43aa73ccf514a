#!/usr/bin/env bash
# Prints a Python that has torch, numpy, safetensors, grpcio and protobuf, in a virtual environment
# that it makes in ~/.cache/castor when it is missing. The torch is LibTorch's where that has all of
# its libraries (deploy/setup.sh --cuda); elsewhere one of its own: train.sh --help has the sizes.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"

torch=$(cd "$root/.deps/venv/lib"/python3*/site-packages && pwd)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/castor/cast-venv
if [ ! -e "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet numpy==2.4.6 safetensors==0.8.0 grpcio==1.76.0 protobuf==4.25.8 >&2
  touch "$venv/ready"
fi
link=$(echo "$venv"/lib/python3*/site-packages)/libtorch.pth
[ -e "$venv/own-torch" ] || printf '%s\n' "$torch" >"$link"
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  printf 'install: LibTorch lacks the libraries of its Python: installing torch %s\n' "$TORCH_VERSION" >&2
  rm -f "$link"
  "$root/.deps/venv/bin/uv" pip install --quiet --system-certs --python "$venv/bin/python" \
    "torch==$TORCH_VERSION" >&2
  touch "$venv/own-torch"
fi
printf '%s\n' "$venv/bin/python"
