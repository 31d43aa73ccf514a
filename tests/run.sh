#!/usr/bin/env bash
# Sets up, builds and runs the tests, and ends with ctest's summary. See usage() for the flags.
# Build folders: build/ (Release, shared with deploy/quickstart.sh), build-asan/, build-tsan/.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

usage() {
  cat <<TEXT
Usage: tests/run.sh [--asan | --tsan [--served | --inputs]] [--quick] [--bench] [--cuda]
  (none)    Release build with the system's compiler; every test and every cheap check
  --asan    clang 16, AddressSanitizer and UndefinedBehaviorSanitizer; unit and integration tests
  --tsan    clang 16, ThreadSanitizer; unit and integration tests
  --served  with a sanitizer: all but castor, castor-load and their tests
  --inputs  with a sanitizer: only the tests of code that reads untrusted bytes
  --kernels with a sanitizer: instrument the CPU's kernels too, which takes minutes to compile
  --quick   unit tests only
  --bench   after the tests, tests/bench/run.sh (Release only)
  --cuda    build the CUDA module too, whether or not a driver is here (Release only)
  -h, --help
Environment: JOBS overrides how many compilers run at once (default: one a core).
TEXT
}

die() { printf 'run.sh: error: %s\n' "$*" >&2; exit 1; }

mode=release tools=ON inputs=false kernels=OFF kernels_of='' quick=false bench=false cuda=false
for arg in "$@"; do
  case $arg in
    --asan | --tsan)
      [ "$mode" = release ] || die "--asan and --tsan are two builds: run them one after the other"
      mode=${arg#--}
      ;;
    --served) tools=OFF ;;
    --inputs) inputs=true ;;
    --kernels) kernels=ON ;;
    --quick) quick=true ;;
    --bench) bench=true ;;
    --cuda) cuda=true ;;
    -h | --help) usage; exit 0 ;;
    *) printf 'run.sh: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
  esac
done
if [ "$mode" = release ] && { [ "$tools" = OFF ] || $inputs; }; then
  die "--served and --inputs go with --asan or --tsan: the Release build is shared with deploy/quickstart.sh"
fi
if [ "$mode" != release ] && { $bench || $cuda; }; then
  die "--bench and --cuda go with the Release build only"
fi

setup=(--dev --model)
flags=("-DCASTOR_TOOLS=$tools") # of CMake
select=() # which tests; none selects all
targets=() # what is built; none is all
runner=() # what ctest runs under
build=build
if $cuda; then
  setup+=(--cuda)
  flags+=(-DCASTOR_CUDA=ON)
fi
if [ "$mode" != release ]; then
  build=build-$mode
  flags+=(-DCASTOR_CUDA=OFF -DCMAKE_CXX_COMPILER=clang++-16 "-DCASTOR_SANITIZE_KERNELS=$kernels")
  # Kernels that are not instrumented are those of the Release build.
  if [ "$kernels" = OFF ]; then kernels_of=$root/build; fi
  flags+=("-DCASTOR_KERNELS_OF=$kernels_of")
  select=(-L '^(unit|integration|sanitizer)$')
  symbolizer=/usr/bin/llvm-symbolizer-16 # without it stacks are bare addresses
fi
case $mode in
  asan)
    flags+=("-DCASTOR_SANITIZE=address,undefined")
    # gRPC's and protobuf's containers cross into uninstrumented libraries, which reads as overflow.
    export ASAN_OPTIONS="detect_container_overflow=0:detect_stack_use_after_return=1"
    export ASAN_SYMBOLIZER_PATH=$symbolizer UBSAN_OPTIONS="print_stacktrace=1"
    export LSAN_OPTIONS="suppressions=$root/tests/sanitizers/lsan.supp:print_suppressions=0"
    ;;
  tsan)
    flags+=(-DCASTOR_SANITIZE=thread)
    # gRPC, absl and LibTorch come uninstrumented; what else stays silent is named in tsan.supp.
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1 second_deadlock_stack=1 \
suppressions=$root/tests/sanitizers/tsan.supp external_symbolizer_path=$symbolizer"
    # clang 16's TSan cannot place its shadow memory where a kernel randomises 32 bits of addresses.
    if setarch -R true 2>/dev/null; then runner=(setarch -R); fi
    ;;
esac
if $inputs; then
  tests=(base_test client_test codec_test encoder_directories_test hf_test loop_test
    server_access_test server_heads_test server_test server_unit_test)
  for corpus in tests/fuzz/corpus/*/; do
    # Minutes to compile: the first needs the emulated CUDA kernels, the second castor-load.
    case $(basename "$corpus") in attention_plan | client_answers) continue ;; esac
    tests+=("fuzz_$(basename "$corpus")_corpus")
  done
  targets=(--target "${tests[@]}")
  select=(-R "^($(IFS='|'; printf '%s' "${tests[*]}"))\$")
fi
if $quick; then select=(-L '^unit$'); fi

deploy/setup.sh "${setup[@]}"
PATH=$root/.deps/bin:$PATH

jobs=${JOBS:-$(nproc)}
printf '\n== configuring and building %s\n' "$build"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
configure() { # $1: the folder; $2..: flags
  cmake -G Ninja -B "$1" -S . -DCMAKE_BUILD_TYPE=Release "${@:2}" >"$log" 2>&1 && return
  cat "$log" >&2
  die "CMake could not configure $1"
}
if [ -n "$kernels_of" ]; then
  [ -e build/CMakeCache.txt ] || configure build -DCASTOR_CUDA=OFF
  cmake --build build --parallel "$jobs" --target castor_cpu_kernels
fi
configure "$build" "${flags[@]}"
cmake --build "$build" --parallel "$jobs" "${targets[@]}"

printf '\n== testing %s\n' "$build"
rc=0
# What failed is all that a log needs of tests that are many.
export GTEST_BRIEF=1
# One more than there are cores: integration tests wait for most of their time.
"${runner[@]}" ctest --test-dir "$build" --parallel $((jobs + 1)) --output-on-failure \
  --no-tests=error "${select[@]}" | tee "$log" || rc=$?
if $bench && [ "$rc" -eq 0 ]; then
  printf '\n== measuring\n'
  tests/bench/run.sh || rc=$?
  printf '\n== tests, as above\n'
  sed -n '/tests passed/,$p' "$log"
fi
exit "$rc"
