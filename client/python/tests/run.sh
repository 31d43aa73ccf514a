#!/usr/bin/env bash
# Builds the wheel, installs it in an empty environment and tests it against a built castor-server.
#   run.sh [--python PYTHON] [--with REQUIREMENT]... [--venv FOLDER] [PYTEST'S ARGUMENTS]
# Without --with also checks that the sources are clean and the stubs fresh. Needs the network.
# CASTOR_SERVER_PROGRAM names the server, by default the build's.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$here"
python=python3 with=() venv=
while [ $# -gt 0 ]; do
  case $1 in
    --python) python=$2 ;;
    --with) with+=("$2") ;;
    --venv) venv=$2 ;;
    *) break ;;
  esac
  shift 2
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
venv=${venv:-$scratch/venv}
"$python" -m venv "$venv"
bin=$venv/bin
"$bin/pip" install --quiet uv
install() { "$bin/uv" pip install --quiet --python "$bin/python" "$@"; }
"$bin/uv" build --quiet --wheel --out-dir "$scratch" .
install "$scratch"/*.whl pytest pytest-xdist "${with[@]}"

if [ ${#with[@]} -eq 0 ]; then
  install mypy==2.4.1 ruff==0.17.6 types-protobuf typing-extensions pyarrow
  "$bin/ruff" check .
  "$bin/ruff" format --check .
  "$bin/mypy"
  python3 -m venv "$scratch/stubs" # whichever Python has that old wheel
  "$bin/uv" pip install --quiet --python "$scratch/stubs/bin/python" 'grpcio-tools==1.62.3' \
    'setuptools<70'
  PYTHON=$scratch/stubs/bin/python ./generate.sh --check
fi
"$bin/uv" pip list --quiet --python "$bin/python" | grep -E '^(grpcio|numpy|protobuf) ' | tr '\n' ' '
"$bin/python" --version
# Not python -m, which would find what lies here. More processes than cores: most tests wait.
"$bin/pytest" -q -n 4 tests "$@"
