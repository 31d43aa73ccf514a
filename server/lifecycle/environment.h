// Settings that libraries read from the environment before main runs.
#pragma once

#include <cstdint>

namespace castor::server {

// Sets the variable below unless the environment does, and starts the program again in the same
// process. Returns if there is nothing to set. Call it as early as possible: in a .preinit_array,
// or first in main, where the libraries have initialised themselves and will do so again.
//
// GOMP_SPINCOUNT: LibTorch's OpenMP runtime lets its threads spin for milliseconds before they
//   sleep. That takes the cores away from gRPC's threads and from the neighbours on a shared
//   machine. Not set if OMP_WAIT_POLICY is.
void SetEnvironment(char** argv, char** environment);

// How the process's allocator treats the memory of large messages.

// How much freed memory is kept by default: 1 GiB, or an eighth of the memory limit. 32 requests of
// 2,048 tokens, 8 heads of 64 in fp32, are 512 MiB.
int64_t KeptFreeBytes();

// Keeps up to `most` bytes of freed memory for the next message instead of handing every block back
// to the system: gRPC allocates the slices of each message afresh, and by default a message of some
// MiB spends half of its time on faulting its pages in again. Call once, before threads start.
void KeepFreedMemory(int64_t most = KeptFreeBytes());

}  // namespace castor::server
