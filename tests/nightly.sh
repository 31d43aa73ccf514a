#!/usr/bin/env bash
# The tests that take too long for every change. Runs each part to its end, keeps its log, and exits
# 1 if one failed. See usage().
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

usage() {
  cat <<TEXT
Usage: tests/nightly.sh [--logs FOLDER] [--rounds N] [--fuzz SECONDS] [PART ...]
Parts, all by default, in this order:
  release   the Release build with CUDA and its tests, which the other parts use
  seeds     the tests that draw random input, N times (default 100), each with a seed of its own
  asan      every unit and integration test under AddressSanitizer and UndefinedBehaviorSanitizer
  fuzz      every fuzzer for SECONDS (default 600), beginning with its corpus
  hostile   the attacks, 20 seconds each
  gpu       castor-gpu-check on the CPU's device
  chart     the Helm chart: golden renders, refusals, schemas of every supported Kubernetes
  clients   other languages' gRPC clients, Triton's, KServe's and TEI's, stock HTTP clients, Tokenize
            against transformers' tokenizers, and the rotation of certificates and tokens
  python    the Python package with every Python, old and new libraries, and other packages
  cast      trains a CAST encoder for a few steps, serves it, and compares what both compute
Environment: JOBS overrides how many compilers run at once (default: one a core).
TEXT
}

die() { printf 'nightly.sh: error: %s\n' "$*" >&2; exit 2; }

logs=build/nightly rounds=100 fuzz_seconds=600 parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --logs | --rounds | --fuzz)
      [ $# -gt 1 ] || die "$1 needs a value"
      case $1 in
        --logs) logs=$2 ;;
        --rounds) rounds=$2 ;;
        --fuzz) fuzz_seconds=$2 ;;
      esac
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    release | seeds | asan | fuzz | hostile | gpu | chart | clients | python | cast) parts+=("$1") ;;
    *) die "unknown part or option $1 (see --help)" ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(release seeds asan fuzz hostile gpu chart clients python cast)
mkdir -p "$logs"
jobs=${JOBS:-$(nproc)}

release() { tests/run.sh --cuda; }

asan() { tests/run.sh --asan --served --kernels; }

seeds() {
  local seed
  for _ in $(seq "$rounds"); do
    seed=$((RANDOM << 15 | RANDOM))
    printf '== seed %d\n' "$seed"
    CASTOR_TEST_SEED=$seed GTEST_BRIEF=1 ctest --test-dir build --parallel "$jobs" \
      --output-on-failure -L '^unit$' -E corpus || { printf 'FAILED with seed %d\n' "$seed"; return 1; }
  done
}

fuzz() {
  PATH=$root/.deps/bin:$PATH cmake -G Ninja -B build-fuzz -S . -DCASTOR_FUZZ=ON -DCASTOR_CUDA=OFF \
    -DCMAKE_CXX_COMPILER=clang++-16 -DCASTOR_SANITIZE=address,undefined
  local name targets=()
  for name in tests/fuzz/corpus/*/; do targets+=("fuzz_$(basename "$name")"); done
  cmake --build build-fuzz --parallel "$jobs" --target "${targets[@]}"
  for name in "${targets[@]}"; do
    mkdir -p "build-fuzz/found/$name"
    "build-fuzz/tests/fuzz/$name" -max_total_time="$fuzz_seconds" -print_final_stats=1 \
      -artifact_prefix="build-fuzz/found/" "build-fuzz/found/$name" "tests/fuzz/corpus/${name#fuzz_}"
  done
}

hostile() { /usr/bin/python3 tests/hostile/run.py --server build/server/castor-server --seconds 20; }

gpu() { build/tests/gpu/castor-gpu-check --device cpu --seed "$RANDOM"; }

chart() { tests/deploy/chart/run.sh; }

clients() {
  python3 -m venv "$logs/venv"
  # shellcheck source=deploy/versions.env
  source deploy/versions.env
  "$logs/venv/bin/pip" install --quiet grpcio protobuf "transformers==$TRANSFORMERS_VERSION" \
    "sentencepiece==$SENTENCEPIECE_VERSION"
  "$logs/venv/bin/python" tests/clients/run.py --server build/server/castor-server
  PYTHONPATH=client/python/src "$logs/venv/bin/python" tests/clients/token_peers.py \
    --server build/server/castor-server --seed "$RANDOM"
  /usr/bin/python3 tests/rotation/run.py --build build
  tests/oip/run.sh build/server/castor-server "$logs"
  "$logs/venv/bin/pip" install --quiet grpcio-tools sentence-transformers
  "$logs/venv/bin/python" tests/tei/client.py --server build/server/castor-server
  tests/http/run.sh --server build/server/castor-server
}

python() { client/python/tests/matrix.sh; }

cast() {
  tests/cast/train.sh --steps 20 "$logs/cast"
  tests/cast/serve.sh "$logs/cast" float32 bfloat16 int8
}

failed=()
for part in "${parts[@]}"; do
  printf '== %s, into %s\n' "$part" "$logs/$part.log"
  begin=$SECONDS
  # Not as a condition, where a function would run on after an error.
  set +e
  (set -e; "$part") >"$logs/$part.log" 2>&1
  rc=$?
  set -e
  if [ "$rc" -eq 0 ]; then
    printf '   passed in %d s\n' $((SECONDS - begin))
  else
    printf '   FAILED after %d s:\n' $((SECONDS - begin))
    tail -n 20 "$logs/$part.log"
    failed+=("$part")
  fi
done
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[*]}"; exit 1; }
