// Page-locked host memory for a HostPool: asynchronous copies need it.
#pragma once

#include "engine/base/host_memory.h"

namespace castor {

// Memory that the driver has pinned for device `index`. One device per process: a pool outlives its
// device, and buffers are freed on any thread.
HostMemorySource PinnedMemory(int index);

}  // namespace castor
