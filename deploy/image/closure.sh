#!/usr/bin/env bash
# Copies the shared libraries that programs and libraries of Castor load into one folder, for an image
# that carries those and nothing else.
#   closure.sh TARGET FILE...
# glibc stays out: it belongs to the base image, as the dynamic loader does. NVIDIA's driver library
# stays out: the container runtime mounts the host's.
set -euo pipefail

target=$1
shift

ldd "$@" >/tmp/closure.$$
trap 'rm -f /tmp/closure.$$' EXIT
if grep 'not found' /tmp/closure.$$ | grep -v 'libcuda\.so\.1'; then
  echo "closure: the libraries above are missing" >&2
  exit 1
fi

mkdir -p "$target"
mapfile -t libraries < <(awk '$2 == "=>" && $3 ~ /^\// { print $3 }' /tmp/closure.$$ | sort -u |
  grep -vE '/(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|anl))\.so[.0-9]*$')
copied=0
for library in "${libraries[@]}"; do
  files=("$library")
  # These are opened by name at run time, so ldd does not list them.
  case $library in
    */libcudnn.so.*) files+=("${library%/*}"/libcudnn_*.so.*) ;;
    */libnvrtc.so.*) files+=("${library%/*}"/libnvrtc-builtins.so.*) ;;
  esac
  for file in "${files[@]}"; do
    [ -e "$target/${file##*/}" ] && continue
    install -m 644 "$(realpath "$file")" "$target/${file##*/}"
    copied=$((copied + 1))
  done
done
echo "closure: $copied libraries, $(du -sh "$target" | cut -f1)"
