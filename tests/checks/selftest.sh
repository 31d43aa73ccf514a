#!/usr/bin/env bash
# Shows that each check can fail. Plants one violation of each kind in a small tree and expects the
# check to refuse it, and to accept the same tree without it.
set -euo pipefail

checks=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

expect() { # $1: pass or refuse; $2: name; $3..: command
  local want=$1 name=$2 got=pass
  shift 2
  "$@" >"$work/output" 2>&1 || got=refuse
  [ "$got" = "$want" ] && return
  printf 'selftest: %s: wanted %s, got %s:\n' "$name" "$want" "$got"
  cat "$work/output"
  failures=$((failures + 1))
}

plant() { # $1: file; stdin: its text
  mkdir -p "$(dirname "$work/tree/$1")"
  cat >"$work/tree/$1"
}
fresh_tree() {
  rm -rf "$work/tree"
  plant engine/engine.h <<<'#include "engine/base/error.h"'
  plant engine/device/cuda/stream.cc <<<'#include <c10/cuda/CUDAStream.h>'
  plant server/main.cc <<<'#include "engine/engine.h"'
  plant client/main.cc <<<'#include "castor/v1/server.grpc.pb.h"'
  plant deploy/a.sh <<<$'#!/bin/sh\necho "$1"'
}

# ---- layering: one line against each row of the table --------------------------------------------
fresh_tree
expect pass "clean tree" "$checks/check_layering.sh" "$work/tree"
while read -r file header; do
  fresh_tree
  plant "$file" <<<"#include $header"
  expect refuse "$file including $header" "$checks/check_layering.sh" "$work/tree"
done <<'TEXT'
engine/engine.h "ATen/core/Tensor.h"
engine/engine.h <grpcpp/grpcpp.h>
engine/engine.h "engine/device/device.h"
engine/base/error.h "engine/request.h"
engine/base/error.h <spdlog/spdlog.h>
engine/kernels/cpu/softmax.h "absl/status/status.h"
engine/kernels/cpu/softmax.h <c10/core/Device.h>
engine/kernels/cpu/softmax.h <cuda_runtime.h>
engine/hf/tokenizer.cc "engine/encoder/model.h"
engine/attention/vanilla.cc "engine/device/device.h"
engine/attention/vanilla.cc "castor/v1/kernel.pb.h"
engine/encoder/model.cc "engine/loop/engine_loop.h"
engine/device/cpu.cc "engine/loop/engine_loop.h"
engine/device/cpu.cc "engine/hf/tokenizer.h"
engine/loop/engine_loop.cc <prometheus/counter.h>
engine/new_layer/file.cc "server/main.h"
server/main.cc "engine/loop/engine_loop.h"
server/main.cc "client/client.h"
server/main.cc <torch/torch.h>
client/client.cc "engine/engine.h"
client/client.cc "server/main.h"
client/client.cc <prometheus/counter.h>
client/client.cc <boost/beast/http.hpp>
engine/device/cpu.cc <toml++/toml.h>
TEXT

# ---- symbols: a name of LibTorch's that another library defines too ------------------------------
library() { # $1: file; stdin: C++
  c++ -O2 -shared -fPIC -Wl,-soname,"$(basename "$1")" -o "$1" -x c++ -
}
mkdir -p "$work/lib/torch/lib" "$work/other"
library "$work/lib/torch/lib/libc10.so" <<<'namespace pb { int Parse() { return 3; } }'
library "$work/lib/torch/lib/libtorch_cpu.so" <<<'#include <vector>
template class std::vector<int>; int Torch() { return 1; }'
library "$work/other/libwire.so" <<<'#include <vector>
template class std::vector<int>; int Wire() { return 1; }'
library "$work/other/libbroken.so" <<<'namespace pb { int Parse() { return 4; } }'
for name in wire broken; do
  c++ -o "$work/$name" -x c++ - -x none -Wl,--no-as-needed "$work/other/lib$name.so" \
    -Wl,-rpath,"$work/other" <<<'int main() {}'
done
expect pass "shared std templates" "$checks/check_symbols.sh" "$work/wire" "$work/lib/torch/lib"
expect refuse "one function twice" "$checks/check_symbols.sh" "$work/broken" "$work/lib/torch/lib"

# ---- format, shell and links: they read git's list -----------------------------------------------
# A hook or a CI runner may point git elsewhere.
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
fresh_tree
cp "$checks/../../.clang-format" "$work/tree/"
plant README.md <<<$'# A tree, `grown`\n[above](#a-tree-grown), [notes](engine/notes.md#one), [engine](engine)'
plant engine/notes.md <<<$'## One\n[up](../README.md)'
git -C "$work/tree" init --quiet
git -C "$work/tree" add .
expect pass "clean format" "$checks/check_format.sh" "$work/tree"
expect pass "clean shell" "$checks/check_shell.sh" "$work/tree"
expect pass "links that hold" "$checks/check_links.sh" "$work/tree"
plant server/main.cc <<<'int  main( ){return 0 ;}'
plant deploy/a.sh <<<$'#!/bin/sh\nrm -rf $1/*'
expect refuse "unformatted file" "$checks/check_format.sh" "$work/tree"
expect refuse "unquoted variable" "$checks/check_shell.sh" "$work/tree"
while read -r line; do
  plant engine/notes.md <<<$'## One\n'"$line"
  expect refuse "in engine/notes.md: $line" "$checks/check_links.sh" "$work/tree"
done <<'TEXT'
[a file that is not there](../engine/gone.md)
[one that is there from elsewhere](engine/notes.md)
[a heading that is not there](../README.md#a-tree)
one line of prose that is so long that no reader can hold it next to another file, or quote it in mail
TEXT

# ---- ptxas: the assembler's report on a kernel ---------------------------------------------------
ptxas_says() { # $1: bytes spilled; $2: bytes of static shared memory
  printf "ptxas info    : Compiling entry function 'kernel' for 'sm_90a'\n"
  printf '    8 bytes stack frame, %d bytes spill stores, 4 bytes spill loads\n' "$1"
  printf 'ptxas info    : Used 40 registers, used 1 barriers, %d bytes smem\n' "$2"
}
fresh_tree
kernels=$work/tree/engine/kernels/cuda reports=$work/tree/reports
plant engine/kernels/cuda/kernel.cu <<<'__global__ void __launch_bounds__(128) Kernel() {}'
expect refuse "no report of any kernel" "$checks/check_ptxas.sh" "$kernels" "$work/tree"
ptxas_says 44 49152 | plant reports/kernel.cu.o.ptxas
expect pass "kernels within bounds" "$checks/check_ptxas.sh" "$kernels" "$reports"
ptxas_says 48 0 | plant reports/kernel.cu.o.ptxas
expect refuse "a kernel that spills" "$checks/check_ptxas.sh" "$kernels" "$reports"
ptxas_says 0 49153 | plant reports/kernel.cu.o.ptxas
expect refuse "too much shared memory" "$checks/check_ptxas.sh" "$kernels" "$reports"
ptxas_says 0 0 | plant reports/kernel.cu.o.ptxas
plant engine/kernels/cuda/kernel.cu <<<'__global__ void Kernel() {}'
expect refuse "a kernel without launch bounds" "$checks/check_ptxas.sh" "$kernels" "$reports"

[ "$failures" -eq 0 ] || exit 1
echo "selftest: every check refused what was planted"
