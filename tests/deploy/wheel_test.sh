#!/usr/bin/env bash
# Installs what deploy/wheel.sh makes on bare root file systems, without a compiler and without a
# network, and uses it there as a notebook would.
#   tests/deploy/wheel_test.sh [--build DIR] [--full] [SUITE...]
#     --full  with all that torch asks for, 4 GB of CUDA, in place of the CPU's parts: from these the
#             first rows must come within two minutes
#     SUITE   bookworm (Debian 12), noble (Ubuntu 24.04), jammy (22.04); default: the first two
# Needs root, a built tree with deploy/setup.sh's --model, Debian's debootstrap, and the network for
# what it downloads first. Environment: CASTOR_WHEEL_WORK, a folder with 10 GB free that is kept
# (default: under the user's cache).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"
work=${CASTOR_WHEEL_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/castor/wheel}
build=$root/build full=false
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$(cd "$2" && pwd); shift ;;
    --full) full=true ;;
    *) break ;;
  esac
  shift
done
suites=("$@")
[ $# -gt 0 ] || suites=(bookworm noble)
uv=$root/.deps/venv/bin/uv
mkdir -p "$work/wheels"
say() { printf '\n== %s\n' "$*"; }
failed=0
fail() { printf 'FAIL  %s\n' "$*"; failed=$((failed + 1)); }
pass() { printf 'PASS  %s\n' "$*"; }
says() { # WHAT PATTERN CMD...: CMD fails, and its output has the pattern
  local what=$1 pattern=$2 out
  shift 2
  if out=$("$@" 2>&1); then fail "$what: went through"; return; fi
  if out=$(grep -m 1 -E -- "$pattern" <<<"$out"); then pass "$what: $out"; else fail "$what: no '$pattern'"; fi
}

# ---- the wheels ----------------------------------------------------------------------------------
rm -f "$work"/wheels/castor_*
wheel=$("$root/deploy/wheel.sh" --build "$build" "$work/wheels")
say "$(cd "$work/wheels" && du -h castor_* | tr '\n' ' ')"

before=$failed names=$(unzip -Z1 "$wheel") count=0
while read -r library; do
  package=$(dpkg-query -S "*/x86_64-linux-gnu/$library" | sed 's/:.*//; q')
  grep -q "/licenses/doc/$package/copyright$" <<<"$names" || fail "no licence of $package, for $library"
  count=$((count + 1))
done < <(grep -oP '^castor_server/lib/\K(?!libcastor_).*' <<<"$names")
[ "$failed" != "$before" ] || pass "$count libraries have licences in the wheel"

pip=("$uv" tool run --quiet pip)
# LibTorch on a CPU: deploy/setup.sh --cpu takes the same.
parts=("torch==$TORCH_VERSION" "nvidia-cuda-cupti==$CUDA_CUPTI_VERSION"
  "nvidia-cuda-runtime==$CUDA_RUNTIME_VERSION")
fetch() { # PYTHON: wheels for its version
  local for=(--quiet --only-binary=:all: --python-version "$1" --dest "$work/wheels")
  "${pip[@]}" download "${for[@]}" grpcio numpy protobuf
  if $full; then "${pip[@]}" download "${for[@]}" "torch==$TORCH_VERSION"; return; fi
  "${pip[@]}" download "${for[@]}" --no-deps "${parts[@]}"
}
for platform in musllinux_1_2_x86_64 manylinux_2_39_aarch64 manylinux_2_34_x86_64 macosx_14_0_arm64; do
  says "pip on $platform" 'No matching distribution found' "${pip[@]}" download --no-index --no-deps \
    --find-links "$work/wheels" --only-binary=:all: --platform "$platform" --dest "$work" castor-server
done

# ---- file systems --------------------------------------------------------------------------------
bare() { # SUITE: $work/SUITE, as a machine that has Python and nothing to compile with
  [ ! -e "$work/$1/.done" ] || return 0
  rm -rf --one-file-system "${work:?}/$1"
  local from=(http://deb.debian.org/debian) check=()
  if [ "$1" != bookworm ]; then # Debian's debootstrap has neither Ubuntu's keys nor its newer names
    check=(--no-check-gpg)
    from=(http://archive.ubuntu.com/ubuntu /usr/share/debootstrap/scripts/gutsy)
  fi
  debootstrap --variant=minbase --components="main$([ "$1" = bookworm ] || echo ,universe)" \
    --include=ca-certificates,python3,python3-venv "${check[@]}" "$1" "$work/$1" "${from[@]}" >"$work/$1.log"
  touch "$work/$1/.done"
}

inside() { # SUITE CMD...: in its file system, with processes, mounts and a network of its own: none
  local at=$work/$1
  shift
  # shellcheck disable=SC2016
  unshare --mount --pid --net --fork --kill-child bash -c '
    at=$1; shift
    mount -t proc proc "$at/proc" && mount --rbind /dev "$at/dev" &&
      mount --bind "$WHEELS" "$at/mnt/wheels" && mount --bind "$MODEL" "$at/mnt/model" &&
      exec chroot "$at" /usr/bin/env -i HOME=/root PATH=/env/bin:/usr/bin:/bin LC_ALL=C.UTF-8 "$@"' \
    inside "$at" "$@"
}
WHEELS=$work/wheels MODEL=$(realpath "$root/.deps/minilm")
export WHEELS MODEL

for suite in "${suites[@]}"; do
  bare "$suite"
  at=$work/$suite
  rm -rf "$at"/{env,tmp/*}
  mkdir -p "$at"/mnt/{wheels,model}
  cp "$root/tests/deploy/wheel_check.py" "$at/mnt/"
  fetch "$(chroot "$at" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  # shellcheck disable=SC2016
  say "$suite: $(chroot "$at" sh -c '. /etc/os-release; echo "$PRETTY_NAME"; getconf GNU_LIBC_VERSION
    python3 --version; command -v gcc cc c++ ld || echo no compiler' | paste -sd,)"

  # The built server, to compare with: its socket is in the file system.
  "$build/server/castor-server" --listen "unix:$at/tmp/built" --metrics-listen off --model "m=$MODEL" \
    2>"$work/built.log" &
  built=$!
  trap 'kill $built' EXIT
  install=()
  $full || install=("${parts[@]}")
  # shellcheck disable=SC2016
  inside "$suite" bash -euc '
    begun=$(date +%s.%N)
    python3 -m venv /env
    install() { pip install --quiet --no-index --find-links /mnt/wheels "$@" 2>/tmp/pip || cat /tmp/pip; }
    [ $# -eq 0 ] || install --no-deps "$@" castor-server
    install castor-client $([ $# -gt 0 ] || echo castor-server)
    python /mnt/wheel_check.py "$begun" $([ $# -gt 0 ] && echo 120 || echo 600)' \
    install "${install[@]}" ||
    fail "$suite: the check above"
  kill "$built"
  wait "$built" || true
  trap - EXIT

  run=(inside "$suite" python -c 'import castor; castor.start_server({})')
  # A package that says that it is another version.
  # shellcheck disable=SC2016
  inside "$suite" bash -euc '
    cd /env/lib/python3*/site-packages
    mv torch-*.dist-info/METADATA /tmp/METADATA
    sed "s/^Version: .*/Version: 2.10.0/" /tmp/METADATA >"$(echo torch-*.dist-info)/METADATA"'
  says "$suite, another torch" "needs torch $TORCH_VERSION, and torch 2.10.0 is installed: pip install" "${run[@]}"
  says "$suite, another torch, console" 'torch 2.10.0 is installed' inside "$suite" castor-server --version
  inside "$suite" pip --quiet uninstall --yes torch 2>/dev/null
  says "$suite, no torch" "needs torch $TORCH_VERSION, which is not installed: pip install" "${run[@]}"
  inside "$suite" pip --quiet uninstall --yes castor-server
  says "$suite, no castor-server" 'there is no program castor-server: pip install' "${run[@]}"
  left=$(find "$at/env" -path '*castor_server*')
  [ -z "$left" ] || fail "$suite: uninstalling leaves $left"
done
say "$failed failed"
[ "$failed" = 0 ]
