#!/usr/bin/env bash
# Builds the image without a registry: a base by debootstrap, then the Dockerfile by buildah.
#   tests/deploy/image.sh [--from-build DIR] ARCHIVE.tar
#     --from-build DIR   pack this built tree instead of compiling in the Dockerfile's own stage;
#                        for work on the chart, where a minute counts
# ARCHIVE.tar is the image localhost/castor:test, as `docker load` and `ctr images import` take it.
# Needs root, and Debian's packages buildah and debootstrap. Environment: CASTOR_IMAGE_WORK, a
# folder with 15 GB free (default under the user's cache); CASTOR_IMAGE_CCACHE, a compiler cache
# that the build may use (default: none).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=${CASTOR_IMAGE_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/castor/image}
from_build=
if [ "${1:-}" = --from-build ]; then
  from_build=$2
  shift 2
fi
archive=$(readlink -m "${1:?usage: image.sh [--from-build DIR] ARCHIVE.tar}")
say() { printf '%s image: %s\n' "$(date +%T)" "$*" >&2; }

mkdir -p "$work"
# Plain copies for layers: overlays need what a container inside a container has not.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
store=(--root "$work/storage" --runroot "$work/run")
buildah() { command buildah "${store[@]}" "$@"; }

base() {
  if buildah images -q localhost/debian:bookworm-slim 2>/dev/null | grep -q .; then return; fi
  say "the base, by debootstrap"
  rm -rf --one-file-system "$work/base"
  debootstrap --variant=minbase --include=ca-certificates \
    --components=main bookworm "$work/base" http://deb.debian.org/debian >"$work/debootstrap.log"
  printf 'deb http://deb.debian.org/debian %s main\n' bookworm bookworm-updates \
    >"$work/base/etc/apt/sources.list"
  # Authorities that this machine trusts besides the distribution's: those of a proxy, mostly. They
  # do not get into the runtime image.
  cp -r /usr/local/share/ca-certificates/. "$work/base/usr/local/share/ca-certificates/"
  chroot "$work/base" update-ca-certificates >/dev/null 2>&1
  rm -rf "$work"/base/var/{cache/apt/archives/*.deb,lib/apt/lists/*}
  printf 'FROM scratch\nCOPY . /\n' >"$work/Base"
  buildah build --quiet -f "$work/Base" -t localhost/debian:bookworm-slim "$work/base" >/dev/null
  rm -rf --one-file-system "$work/base"
}

commit=$(git -C "$root" rev-parse --short=12 HEAD)
flags=(--pull=never --timestamp 0 --build-arg "CASTOR_GIT_COMMIT=$commit" -t localhost/castor:test)
if [ -n "$from_build" ]; then
  # The Dockerfile's last stage, with a file system that is assembled here.
  context=$(mktemp -d)
  trap 'rm -rf "$context"' EXIT
  CASTOR_GIT_COMMIT=$commit "$root/deploy/image/rootfs.sh" "$from_build" "$context/rootfs"
  sed -n '/^FROM scratch/,$p' "$root/Dockerfile" |
    sed 's/COPY --from=build \/rootfs/COPY rootfs/' >"$context/Dockerfile"
  buildah build "${flags[@]}" "$context" >&2
else
  base
  say "the image, by the Dockerfile; without a compiler cache this takes some seven minutes"
  if [ -n "${CASTOR_IMAGE_CCACHE:-}" ]; then
    flags+=(--volume "$CASTOR_IMAGE_CCACHE:/root/.ccache")
  fi
  buildah build "${flags[@]}" --build-arg BASE=localhost/debian:bookworm-slim "$root" >&2
fi
rm -f "$archive"
buildah push localhost/castor:test "docker-archive:$archive:localhost/castor:test" >&2
say "$(du -h "$archive" | cut -f1) in $archive"
