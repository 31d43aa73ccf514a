// How the process's allocator treats the memory of large messages.
#pragma once

#include <cstdint>

namespace castor::server {

// How much freed memory is kept by default: 1 GiB, or an eighth of the memory limit. 32 requests of
// 2,048 tokens, 8 heads of 64 in fp32, are 512 MiB.
int64_t KeptFreeBytes();

// Keeps up to `most` bytes of freed memory for the next message instead of handing every block back
// to the system: gRPC allocates the slices of each message afresh, and by default a message of some
// MiB spends half of its time on faulting its pages in again. Call once, before threads start.
void KeepFreedMemory(int64_t most = KeptFreeBytes());

}  // namespace castor::server
