#!/usr/bin/env bash
# Prints a Python that has LibTorch's torch, safetensors, grpcio and protobuf, in a virtual
# environment that it makes in ~/.cache/castor when it is missing.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
torch=$(cd "$root/.deps/venv/lib"/python3*/site-packages && pwd)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/castor/cast-venv
if [ ! -e "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet numpy==2.4.6 safetensors==0.8.0 grpcio==1.76.0 protobuf==4.25.8 >&2
fi
printf '%s\n' "$torch" > "$(echo "$venv"/lib/python3*/site-packages)/libtorch.pth"
touch "$venv/ready"
printf '%s\n' "$venv/bin/python"
