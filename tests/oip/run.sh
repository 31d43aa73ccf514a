#!/usr/bin/env bash
# Installs Triton's and KServe's own Python clients, which do not go together, and runs what they are
# promised.   run.sh SERVER FOLDER    the folder is for their virtual environments
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
server=$1 folder=$2

with() { # $1: a name; $2: a package
  [ -x "$folder/$1/bin/python" ] || python3 -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet "$2"
}

with triton 'tritonclient[grpc]'
"$folder/triton/bin/python" "$here/triton.py" --server "$server"
"$folder/triton/bin/python" "$here/nim.py" --server "$server"
with kserve kserve
"$folder/kserve/bin/python" "$here/kserve_client.py" --server "$server"
