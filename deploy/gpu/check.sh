#!/usr/bin/env bash
# Checks and times Castor on a GPU host without network: every CUDA kernel and the whole device
# against their CPU twins, exact and approximate attention through the engine against LibTorch's bare
# call, and a request for every kernel through the server, as users run it.
#   check.sh [--log FILE] [--seed N] [--no-timing] [--libtorch DIR] [--help]
# Runs from a bundle (deploy/gpu/build_bundle.sh) or from a checkout that has one. LibTorch comes
# from --libtorch, else from $CASTOR_LIBTORCH, else from the torch package of the host's python3; it
# must be of the version that the bundle was built with, since C++ libraries of different
# versions do not fit together. Exits 0 when every check held.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bundle=$here
[ -d "$bundle/bin" ] || bundle=$(realpath -m "$here/../../build/gpu-bundle")

say() { printf 'check: %s\n' "$*"; }
die() { printf 'check: error: %s\n' "$*" >&2; exit 1; }

log=castor-gpu-$(date -u +%Y%m%d-%H%M%S).log
libtorch=${CASTOR_LIBTORCH:-}
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --log) log=$2; shift 2 ;;
    --libtorch) libtorch=$2; shift 2 ;;
    --seed) arguments+=(--seed "$2"); shift 2 ;;
    --no-timing) arguments+=(--no-timing); shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) printf 'check.sh: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
  esac
done
[ -f "$bundle/MANIFEST" ] || die "no bundle here: run deploy/gpu/build_bundle.sh where Castor is built"
manifest() { sed -n "s/^$1=//p" "$bundle/MANIFEST"; }

# ---- LibTorch ------------------------------------------------------------------------------------
found=""
if [ -z "$libtorch" ]; then
  command -v python3 >/dev/null || die "no python3 to ask for torch, and no --libtorch"
  # The package's place and version without importing it, which takes seconds.
  found=$(python3 - <<'PYTHON' || true
import importlib.util, pathlib, re
spec = importlib.util.find_spec("torch")
if spec and spec.origin:
    folder = pathlib.Path(spec.origin).parent
    version = re.search(r"__version__ = '([^']+)'", (folder / "version.py").read_text())
    print(folder / "lib", version.group(1) if version else "unknown")
PYTHON
)
  [ -n "$found" ] || die "the host's python3 has no torch; give LibTorch's lib folder with --libtorch"
  libtorch=${found% *}
fi
for library in libtorch_cpu.so libtorch_cuda.so libc10.so libc10_cuda.so; do
  [ -f "$libtorch/$library" ] || die "$libtorch has no $library: is it a CUDA build of LibTorch?"
done
wanted=$(manifest libtorch)
version=${found##* }
# A LibTorch that was named by its folder has its version in its own package, if there is one.
if [ -z "$version" ] && [ -f "$libtorch/../version.py" ]; then
  version=$(sed -n "s/^__version__ = '\(.*\)'$/\1/p" "$libtorch/../version.py")
fi
case $version in
  "$wanted" | "$wanted"+*) ;;
  "") say "cannot tell the version of $libtorch; the bundle needs $wanted" ;;
  *) die "LibTorch $version in $libtorch, but the bundle was built with $wanted. C++ libraries of
  other versions do not load: build the bundle against $version (TORCH_VERSION in deploy/versions.env)
  or give LibTorch $wanted with --libtorch" ;;
esac

# The CUDA runtime lies next to the torch package, in the nvidia packages, or in the system.
cuda_folders=$(find "$libtorch/../../nvidia" -maxdepth 3 -name 'libcudart.so.*' -printf '%h:' \
  2>/dev/null || true)
export LD_LIBRARY_PATH="$bundle/lib:$libtorch:$cuda_folders${LD_LIBRARY_PATH:-}"

# ---- does everything load ------------------------------------------------------------------------
# By version order, the bundle's glibc must come first.
host_glibc=$(ldd --version | awk 'NR == 1 { print $NF }')
if [ "$(printf '%s\n' "$(manifest glibc)" "$host_glibc" | sort -V | head -1)" != "$(manifest glibc)" ]; then
  die "the bundle needs glibc $(manifest glibc), and the host has $host_glibc"
fi
# -r resolves every symbol, so that a wrong LibTorch fails here and not half-way.
missing=$(ldd -r "$bundle/bin/castor-gpu-check" "$bundle/lib/libcastor_cuda.so" 2>&1 |
  grep -E 'not found|undefined symbol' | grep -v 'libcuda\.so\.1' | sort -u || true)
[ -z "$missing" ] || die "something is missing, or LibTorch is another one:
$missing"

# ---- run -----------------------------------------------------------------------------------------
# Runs a server on the GPU and asks it for every kernel. The client checks exact attention by its
# own computation; for approximations it prints the server's estimate of their error. Unlike
# castor-gpu-check, the server opens the CUDA module at run time.
ask_server() {
  local server_log server kernel dtype options address="" rc=0
  server_log=$(mktemp)
  "$bundle/bin/castor-server" --device cuda --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 \
    2>"$server_log" &
  server=$!
  for _ in $(seq 600); do
    address=$(sed -n 's/.* listening .*grpc=\([^ ]*\).*/\1/p' "$server_log")
    if [ -n "$address" ] || ! kill -0 "$server" 2>/dev/null; then break; fi
    sleep 0.1
  done
  if [ -n "$address" ]; then
    for kernel in vanilla clustered improved-clustered cast automatic,max-relative-error=0.5; do
      for dtype in float32 bfloat16; do
        printf -- '-- %s, %s\n' "$kernel" "$dtype"
        options=()
        case $kernel in
          clustered | improved-clustered) options=(--fidelity-rows 64) ;;
        esac
        "$bundle/bin/castor" attend --server "$address" --lengths 7,128,1024,4096 --heads 8 \
          --head-dim 64 --dtype "$dtype" --kernel "$kernel" "${options[@]}" || rc=$?
      done
    done
    kill -TERM "$server"
  else
    rc=1
  fi
  wait "$server" || rc=$?
  cat "$server_log"
  rm -f "$server_log"
  if [ "$rc" -eq 0 ]; then echo "ok   the server"; else echo "FAIL the server"; fi
  return "$rc"
}

run_all() {
  local rc=0
  "$bundle/bin/castor-gpu-check" "${arguments[@]}" || rc=$?
  printf '\n== the server, on the GPU\n'
  ask_server || rc=$?
  return "$rc"
}

status=0
{
  echo "Castor GPU check, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  echo "bundle: commit $(manifest commit), built $(manifest built)"
  echo "LibTorch: ${version:-unknown version}"
  echo "host: $(uname -sr), $(nproc) cores, glibc $host_glibc"
  nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv 2>/dev/null ||
    echo "nvidia-smi does not answer"
  run_all
} 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
say "log: $log"
exit "$status"
