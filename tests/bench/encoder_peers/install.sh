#!/usr/bin/env bash
# Installs the runtimes that Castor's encoder is compared with into ~/.cache/castor (about 1.5 GB),
# unless they are there, and prints the Python that has them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
venv=${XDG_CACHE_HOME:-$HOME/.cache}/castor/encoder-peers
python=$venv/bin/python
if ! "$python" -c 'import ctranslate2, nncf, onnxruntime, openvino, sentence_transformers' \
  2>/dev/null; then
  printf '== installing the others into %s\n' "$venv" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" -q install -r tests/bench/encoder_peers/requirements.txt >&2
  "$venv/bin/pip" -q install --no-deps sentence-transformers==5.1.2 >&2
  # LibTorch's own wheel, as Castor has it.
  "$python" - .deps/venv/lib/python3.*/site-packages <<'PYTHON'
import pathlib, site, sys
path = pathlib.Path(sys.argv[1]).resolve()
pathlib.Path(site.getsitepackages()[0], "castor_torch.pth").write_text(
    f"import sys; sys.path.append({str(path)!r})\n")
PYTHON
fi
printf '%s\n' "$python"
