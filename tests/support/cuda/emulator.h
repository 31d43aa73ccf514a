// A small CUDA machine for tests: kernels compiled as plain C++ run here, on the CPU.
//
// Compilation: a .cu file of engine/kernels/cuda is compiled by g++ or clang++ with two
// folders first on the include path (castor_cuda_kernel_test in
// tests/unit/kernels_cuda/CMakeLists.txt does that):
//   tests/support/cuda/include   our own cuda_runtime.h, cuda_fp16.h, ..., so that CUDA need not
//                                be installed: qualifiers, threadIdx, barriers, warp operations,
//                                atomics on integers, half types, and a runtime whose device memory
//                                is the host's.
//   tests/support/cuda/overlay   engine/kernels/cuda/ptx.cuh, the one kernel file with
//                                inline PTX (tensor cores, cp.async), with every instruction
//                                written out from its definition.
// Kernels know nothing of this. They launch through engine/kernels/cuda/launch.cuh.
//
// Execution: each thread of a block is a fiber of the calling thread; a fiber runs until it waits
// at a barrier or in a warp operation. Blocks run one after another. The order of threads in every
// step and the order of blocks are drawn from SetSchedule's seed, so a missing barrier gives wrong
// results, or results that vary with the seed. A kernel that relies on lanes running in lockstep
// fails here.
//
// It finds threads that wait for each other forever, warp operations that the lanes reach
// differently or that name a lane that has exited, bad launch shapes, accesses beyond dynamic
// shared memory (under AddressSanitizer), reads of unwritten dynamic shared memory (it starts as
// NaN), and reads of cp.async data before the wait for it. It cannot find races between
// blocks, and says nothing about speed.
//
// Only one test thread may use it at a time, so ThreadSanitizer has nothing to check.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vector_types.h"

namespace castor::cuda_emulator {

// Sets the order in which threads and blocks run from now on; 0 is the natural order.
void SetSchedule(uint64_t seed);

struct Shape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
};

// Runs body(context) once for every thread of the grid. Ends the process when a kernel misbehaves.
void RunGrid(const Shape& shape, void (*body)(void* context), void* context);

// ---- what device code calls ---------------------------------------------------------------------

void SyncBlock();

// One operation of the lanes in `mask`. `complete` runs once all of them have arrived; lanes[i] is
// the `lane` that lane i passed, on its own stack.
using Complete = void (*)(uint32_t mask, void* const* lanes);
void WarpOperation(uint32_t mask, Complete complete, void* lane);
unsigned LaneIndex();

// The block's dynamic shared memory.
unsigned char* DynamicShared();

// Copies that happen only when waited for.
void QueueCopy(void* to, const void* from, size_t bytes);
void CommitCopies();
void WaitCopies(size_t groups_left);

[[noreturn]] void Fail(const char* what);

}  // namespace castor::cuda_emulator
