#!/usr/bin/env bash
# Assembles the runtime image's file system: Castor's programs, the libraries that they load, and
# the few files that a C library expects. No shell, no package manager, nothing else.
#   rootfs.sh BUILD TARGET      BUILD: a built tree; TARGET: a folder, which it makes
# Environment: SOURCE_DATE_EPOCH, the time of every file (default 0); CASTOR_GIT_COMMIT.
# The same build gives the same bytes. NVIDIA's driver library stays out: the container runtime
# mounts the host's.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
target=$(cd "$2" && pwd)
if [ -n "$(ls -A "$target")" ]; then
  echo "rootfs: $target is not empty" >&2
  exit 1
fi
epoch=${SOURCE_DATE_EPOCH:-0}
umask 022
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# ---- programs, and all that they load ------------------------------------------------------------
cmake --install "$build" --strip --prefix "$target/opt/castor" >/dev/null
programs=("$build/server/castor-server" "$build/client/castor" "$build/client/load/castor-load")

LC_ALL=C ldd "${programs[@]}" "$build"/engine/libcastor_*.so >"$work/ldd"
if grep 'not found' "$work/ldd" | grep -v 'libcuda\.so\.1'; then
  echo "rootfs: the libraries above are missing" >&2
  exit 1
fi
awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/.*ld-linux/ { print $1 }' "$work/ldd" |
  LC_ALL=C sort -u | grep -v '/libcastor_' >"$work/libraries"

: >"$work/manifest" # where a file is in the image, and where it came from
place() { # $1: file; $2: folder in the image
  local to=$2/${1##*/}
  [ -e "$target$to" ] && return
  install -D -m 644 "$(realpath "$1")" "$target$to"
  # A wheel's libraries come with their symbol tables.
  strip --strip-unneeded "$target$to" 2>/dev/null || true
  printf '%s\t%s\n' "$to" "$1" >>"$work/manifest"
}
while read -r library; do
  case $library in
    */ld-linux-x86-64.so.2) # where the kernel looks for it
      place "$library" /lib64
      chmod 755 "$target/lib64/ld-linux-x86-64.so.2"
      ;;
    *) place "$library" /opt/castor/lib ;;
  esac
  # These are opened by name at run time, so ldd does not list them.
  case $library in
    */libcudnn.so.*) for more in "${library%/*}"/libcudnn_*.so.*; do place "$more" /opt/castor/lib; done ;;
    */libnvrtc.so.*) for more in "${library%/*}"/libnvrtc-builtins.so.*; do place "$more" /opt/castor/lib; done ;;
  esac
done <"$work/libraries"

# ---- what the C library reads ------------------------------------------------------------------------
mkdir -p "$target"/etc/ssl/certs "$target"/{tmp,run,proc,sys,dev,models}
chmod 1777 "$target/tmp"
printf 'root:x:0:0:root:/:/sbin/nologin\ncastor:x:10001:10001:castor:/:/sbin/nologin\n' >"$target/etc/passwd"
printf 'root:x:0:\ncastor:x:10001:\n' >"$target/etc/group"
printf 'hosts: files dns\npasswd: files\ngroup: files\n' >"$target/etc/nsswitch.conf"
# The distribution's authorities, and not those that the building machine trusts besides.
authorities=(/usr/share/ca-certificates/mozilla/*.crt)
cat "${authorities[@]}" >"$target/etc/ssl/certs/ca-certificates.crt"
printf '%s\t%s\n' /etc/ssl/certs/ca-certificates.crt "${authorities[0]}" >>"$work/manifest"
cp -L /etc/os-release "$target/etc/os-release" # by which scanners know whose packages these are
echo /opt/castor/lib >"$target/etc/ld.so.conf"
/sbin/ldconfig -r "$target" -X
rm -rf "$target/var/cache/ldconfig"

# ---- what is inside, for scanners and lawyers ----------------------------------------------------------
python3 -I "$here/sbom.py" --manifest "$work/manifest" --source "$root" --target "$target" \
  --commit "${CASTOR_GIT_COMMIT:-unknown}" --epoch "$epoch"

find "$target" -exec touch -h -d "@$epoch" {} +
printf 'rootfs: %s in %s files\n' "$(du -sh --apparent-size "$target" | cut -f1)" \
  "$(find "$target" -type f | wc -l)"
