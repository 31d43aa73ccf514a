#!/usr/bin/env bash
# Encodes one long document at a time, with Castor and with other runtimes, and writes a table in
# Markdown: seconds from text to vector, and the most memory taken.
#   tests/bench/long_documents/run.sh [--lengths 2048,8192] [--models xlm-roberta,modernbert]
#                                 [--runtimes sentence-transformers,onnxruntime,openvino]
#                                 [--rounds 3] [--most-gib 18] [OUT.md]
# The models are of base size, made here with random weights: what they take is true, what they
# answer means nothing, and so these figures say nothing about how well clustered attention serves
# a trained model (tests/bench/encoder/fidelity.sh does). Needs the Release build of tests/run.sh. 8,192
# tokens take about half an hour for both models; 32,768 two hours.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cd "$root"

for arg in "$@"; do
  case $arg in
    -h | --help) sed -n '2,11p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 0 ;;
  esac
done

python=$(tests/bench/encoder_peers/install.sh)
exec "$python" tests/bench/long_documents/compare.py "$@"
