// Page-locked host memory as a source for a HostPool: what asynchronous copies need.
#pragma once

#include "engine/base/host_memory.h"

namespace castor {

// Memory that the driver has pinned for device `index`. One device per process: a pool outlives its
// device, and buffers are freed on any thread.
HostMemorySource PinnedMemory(int index);

}  // namespace castor
