#!/usr/bin/env bash
# Packs what a GPU host needs to check Castor into one folder and one archive, at most 64 MiB.
#   deploy/gpu/build_bundle.sh [--build DIR] [--out DIR] [--help]
#     --build   a build with the CUDA module (default: build-gpu, made if it is not there)
#     --out     where the bundle goes (default: build/gpu-bundle, which git ignores)
# In it: bin/ with the programs, lib/ with our libraries and the distribution's that they load,
# check.sh and a MANIFEST. Not in it: LibTorch and CUDA, which are 4.5 GB and on the host; glibc
# and the C++ runtime, which are the host's own and must be no older than this machine's.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"

limit_mib=64
build=$root/build-gpu out=$root/build/gpu-bundle
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$(realpath "$2"); shift 2 ;;
    --out) out=$(realpath -m "$2"); shift 2 ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) printf 'build_bundle.sh: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
  esac
done

say() { printf 'bundle: %s\n' "$*"; }
die() { printf 'bundle: error: %s\n' "$*" >&2; exit 1; }

if [ ! -f "$build/build.ninja" ]; then
  "$root/deploy/setup.sh" --cuda
  cmake -G Ninja -B "$build" -S "$root" -DCASTOR_CUDA=ON
fi
ninja -C "$build" castor_cuda castor-server castor castor-gpu-check

rm -rf "$out" "$out.tar.gz"
# Installed, so that nothing names this machine's folders: programs look for our libraries in ../lib.
for component in Unspecified gpu-check; do
  cmake --install "$build" --component "$component" --prefix "$out" >/dev/null
done
programs=("$build/server/castor-server" "$build/client/castor"
          "$build/tests/gpu/castor-gpu-check")
libraries=("$build/engine/libcastor_engine.so" "$build/engine/libcastor_cuda.so")
for file in "${programs[@]}"; do
  [ -f "$out/bin/${file##*/}" ] || die "the build left no ${file#"$build"/}"
done
for file in "${libraries[@]}"; do
  [ -f "$out/lib/${file##*/}" ] || die "the build left no ${file#"$build"/}"
done

# The distribution's libraries, found by their folder. The host has the libraries that
# deploy/setup.sh brought (LibTorch, CUDA), and the C library and runtime must be the host's.
hosts='^(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|anl|stdc\+\+|gcc_s|cuda|nvidia-.*))\.so[.0-9]*$'
distribution() { # stdin: ldd's output; prints the distribution's libraries, NAME PATH
  awk '$2 == "=>" && $3 ~ /^\/(usr\/)?lib\// { print $1, $3 }' | sort -u |
    while read -r name path; do [[ $name =~ $hosts ]] || echo "$name $path"; done
}
closure=$(ldd "${programs[@]}" "${libraries[@]}")
distribution <<<"$closure" | while read -r name path; do
  install -m 644 "$(realpath "$path")" "$out/lib/$name"
done
strip --strip-unneeded "$out"/bin/* "$out"/lib/*.so*

install -m 755 "$root/deploy/gpu/check.sh" "$out/check.sh"
commit=$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
if [ "$commit" != unknown ] && ! git -C "$root" diff --quiet HEAD -- engine server client proto tests; then
  commit+=" with uncommitted changes"
fi
glibc=$(ldd --version | awk 'NR == 1 { print $NF }')
cat >"$out/MANIFEST" <<TEXT
commit=$commit
libtorch=$TORCH_VERSION
glibc=$glibc
built=$(date -u +%Y-%m-%dT%H:%M:%SZ)
TEXT

# Check that the bundle is complete: with it, LibTorch and the CUDA runtime on the path, nothing is
# missing, and only the host's own libraries come from outside.
brought=$(awk '$1 ~ /^lib(torch_cpu|cudart)\.so/ { sub("/[^/]*$", "", $3); print $3 }' <<<"$closure" |
  sort -u | paste -sd:)
closure=$(LD_LIBRARY_PATH=$out/lib:$brought ldd "$out"/bin/* "$out"/lib/*.so*)
missing=$({ grep 'not found' <<<"$closure" || true; distribution <<<"$closure"; } | sort -u)
[ -z "$missing" ] || die "the bundle lacks:
$missing"

tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
size_kib=$(du -sk "$out" | cut -f1)
say "$out: $((size_kib / 1024)) MiB, $(find "$out/lib" -type f | wc -l) libraries," \
  "archive $(du -sm "$out.tar.gz" | cut -f1) MiB"
[ "$size_kib" -le $((limit_mib * 1024)) ] || die "the bundle is above $limit_mib MiB"
