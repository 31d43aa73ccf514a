#include "server/lifecycle/allocator.h"

#include <malloc.h>

#include <algorithm>
#include <limits>

#include "engine/base/machine.h"

namespace castor::server {

int64_t KeptFreeBytes() { return MemoryShare(int64_t{1} << 30, 8); }

void KeepFreedMemory(int64_t most) {
  constexpr int64_t kMostThreshold = std::numeric_limits<int>::max();
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // from the heap, not from a mapping of their own
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::min(most, kMostThreshold)));
  mallopt(M_TOP_PAD, 16 << 20);
  // Arenas other than the main one return memory whatever the thresholds say.
  mallopt(M_ARENA_MAX, 1);
}

}  // namespace castor::server
