// A small CUDA machine for tests: kernels compiled as plain C++ run here, on the CPU.
//
// How a kernel gets here. A .cu file of engine/kernels/cuda is compiled by g++ or clang++ with two
// folders before all others on the include path (castor_cuda_kernel_test in
// tests/unit/kernels_cuda/CMakeLists.txt does that):
//   tests/support/cuda/include   cuda_runtime.h, cuda_fp16.h, ... of our own, so that no CUDA needs
//                                to be installed: qualifiers, threadIdx, barriers, warp operations,
//                                atomics on integers, half types, and a runtime whose device memory
//                                is the host's.
//   tests/support/cuda/overlay   engine/kernels/cuda/ptx.cuh, the one file of kernels that speaks
//                                the hardware's language (tensor cores, cp.async, clusters), with
//                                every instruction written out from its definition.
// Kernels know nothing of this. They launch through engine/kernels/cuda/launch.cuh.
//
// What runs. Each thread of a block, and of all blocks of a cluster, is a fiber of the calling
// thread; a fiber runs until it waits at a barrier or in a warp's operation. Blocks (clusters) run
// one after another. The order of threads in every step, and that of blocks, is drawn from
// SetSchedule's seed: a missing barrier gives different results from seed to seed, or wrong ones.
// Nothing may rely on lanes running in step, and a kernel that does fails here.
//
// What it finds: threads that wait for each other forever, operations of a warp that its lanes
// reach differently or that name a lane that has left, bad launch shapes, dynamic shared memory
// beyond its size (under AddressSanitizer), or that nobody wrote (it starts as NaN), and
// cp.async data read before it was waited for. What it cannot find: races between blocks and
// anything about speed. Static __shared__ variables become function-local statics, so a kernel that
// runs in clusters must use dynamic shared memory alone.
//
// One test thread at a time; ThreadSanitizer would have nothing to look at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vector_types.h"

namespace castor::cuda_emulator {

// The order that threads and blocks run in from now on; 0 is the natural one.
void SetSchedule(uint64_t seed);

struct Shape {
  dim3 grid;
  dim3 block;
  dim3 cluster;
  size_t shared_bytes = 0;
};

// Runs body(context) once for every thread of the grid. Ends the process where a kernel errs.
void RunGrid(const Shape& shape, void (*body)(void* context), void* context);

// ---- what device code calls
// ----------------------------------------------------------------------

// What the threads of a block contribute to a barrier, and get from it.
struct Votes {
  int count = 0;  // of threads with a predicate that is not zero
  int threads = 0;
};
Votes SyncBlock(bool predicate);
void SyncCluster();

// One operation of the lanes in `mask`. `complete` runs once, when all of them have come; lanes[i]
// is what lane i passed, in its own stack.
using Complete = void (*)(uint32_t mask, void* const* lanes);
void WarpOperation(uint32_t mask, Complete complete, void* lane);
unsigned LaneIndex();

// The block's dynamic shared memory; and where `local`, an address in it, lies in the block of
// rank `rank` of the cluster.
unsigned char* DynamicShared();
void* MapShared(void* local, unsigned rank);
unsigned ClusterRank();
unsigned ClusterSize();

// Copies that happen only once waited for: `bytes` from `from`, then `zeros` bytes of zero.
void QueueCopy(void* to, const void* from, size_t bytes, size_t zeros);
void CommitCopies();
void WaitCopies(size_t groups_left);

[[noreturn]] void Fail(const char* what);

}  // namespace castor::cuda_emulator
