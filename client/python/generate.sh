#!/usr/bin/env bash
# Makes src/castor/v1 and src/castor/rpc from the contract.
#   generate.sh [--check]    --check: changes nothing, and fails if they would differ
# PYTHON names a Python with grpcio-tools 1.62.3 (and setuptools below 70): protobuf's runtimes read
# what older compilers wrote, so these stubs work with any protobuf from 4.25 on.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
proto=$here/../../proto
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# google.rpc's files belong to googleapis-common-protos, in site-packages and in protobuf's pool of
# descriptors. Under another name, the messages are the same on the wire and collide with nothing.
mkdir -p "$out/in/castor/v1" "$out/in/castor/rpc"
for file in "$proto"/castor/v1/*.proto "$proto"/google/rpc/{status,error_details}.proto; do
  target=$out/in/castor/v1/$(basename "$file")
  case $file in */google/rpc/*) target=$out/in/castor/rpc/$(basename "$file") ;; esac
  sed -e 's|google/rpc/|castor/rpc/|; s|google\.rpc|castor.rpc|' "$file" >"$target"
done
cd "$out/in"
"${PYTHON:-python3}" -m grpc_tools.protoc -I. --python_out=.. --pyi_out=.. castor/*/*.proto
for file in castor/v1/*.proto; do
  if grep -q '^service ' "$file"; then
    "${PYTHON:-python3}" -m grpc_tools.protoc -I. --grpc_python_out=.. "$file"
  fi
done
touch "$out"/castor/{v1,rpc}/__init__.py
for folder in v1 rpc; do
  if [ "${1:-}" = --check ]; then
    diff -r -x __pycache__ "$here/src/castor/$folder" "$out/castor/$folder"
  else
    rm -rf "$here/src/castor/$folder"
    cp -r "$out/castor/$folder" "$here/src/castor/$folder"
  fi
done
