#!/usr/bin/env bash
# Checks castor-load's files with public Python libraries (from PyPI; hence not a test of ctest).
#   run.sh BUILD_FOLDER [PYTHON]     PYTHON: one that has the libraries; else they are installed
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${1:?usage: run.sh BUILD_FOLDER [PYTHON]}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=${2:-$work/venv/bin/python}
if [ $# -lt 2 ]; then
  python3 -m venv "$work/venv"
  "$python" -m pip install -q --disable-pip-version-check hdrhistogram==0.10.8 jsonschema==4.26.0
fi
mkdir "$work/samples"
"$build/tests/bench/load_reports/load_reports_samples" "$work/samples"
"$python" "$here/check.py" "$here/../../../client/load/measure/run.schema.json" "$work/samples"
