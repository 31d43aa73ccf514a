#!/usr/bin/env bash
# Fails when LibTorch and another library of the same process define the same dynamic symbol. The
# loader would bind both to one definition and so mix two versions of a library.
#   check_symbols.sh BINARY TORCH_LIB
# Compares the libraries that BINARY loads with libtorch_cpu and libc10 (and their CUDA
# counterparts, if present) in the folder TORCH_LIB. Instances of std templates are allowed: both
# sides mean the same code.
set -euo pipefail

binary=$1
torch_lib=$(realpath "$2")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

defined() { # the names defined by the libraries in $@
  nm --dynamic --defined-only --format=just-symbols "$@" | sed -e '/^$/d' -e '/:$/d' -e 's/@.*//' | sort -u
}

torch=()
for name in libtorch_cpu libc10 libtorch_cuda libc10_cuda; do
  if [ -e "$torch_lib/$name.so" ]; then torch+=("$torch_lib/$name.so"); fi
done
# The other libraries: not those of LibTorch's folder and wheels, not ours, not the C and C++
# runtimes.
ldd "$binary" >"$work/closure"
if grep 'not found' "$work/closure"; then
  echo "check_symbols: $binary lacks the libraries above" >&2
  exit 1
fi
mapfile -t others < <(awk '$2 == "=>" { print $3 }' "$work/closure" | xargs realpath |
  grep -vE "^${torch_lib%/torch/lib}/|/libcastor|/lib(stdc\+\+|gcc_s|c|m|dl|rt|pthread)[.-]")
if [ ${#torch[@]} -lt 2 ] || [ ${#others[@]} -lt 1 ]; then
  echo "check_symbols: nothing to compare in $torch_lib and $binary" >&2
  exit 1
fi

defined "${torch[@]}" >"$work/torch"
for library in "${others[@]}"; do
  # Drop names in std or __gnu_cxx, and type information of functions that mention only those.
  defined "$library" | comm -12 - "$work/torch" | { grep -vE \
    '^_Z(GV|GR|T[VTIS])?Z*(N[rVKRO]*)?(S[tabsiod]|9__gnu_cxx)' || true; } | c++filt |
    { grep -vE '^(_init|_fini|__bss_start|_edata|_end)$' || true; } |
    while IFS= read -r name; do
      rest=$(sed -E 's/(std|__gnu_cxx)::[A-Za-z0-9_:]*//g' <<<"$name")
      if [[ $name != typeinfo* || $rest == *::* ]]; then
        printf '%s: %s\n' "$library" "$name"
      fi
    done
done >"$work/shared"

if [ -s "$work/shared" ]; then
  cat "$work/shared"
  echo "check_symbols: $(wc -l <"$work/shared") names defined both there and in LibTorch" >&2
  exit 1
fi
echo "check_symbols: ${#others[@]} other libraries and ${#torch[@]} of LibTorch share std templates only"
