#!/bin/sh
# MODEL MANIFEST: whether the model's files, and no others, are those of a manifest by sha256sum.
set -eu
if [ -d "$1" ]; then
  cd "$1"
  files=$(find -L . -type f ! -path ./.castor_fetch.json | sed 's,^\./,,')
else
  cd "${1%/*}"
  files=${1##*/}
fi
sha256sum -c "$2"
named=$(sed 's,^[0-9a-f]* [ *]\(\./\)*,,' "$2")
# The server would read them.
if printf '%s\n' "$files" | grep -Fxv "$named"; then
  echo "are not in the manifest"
  exit 1
fi
