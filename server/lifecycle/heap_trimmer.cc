#include "server/lifecycle/heap_trimmer.h"

#include <malloc.h>

#include <chrono>

#include "server/logging.h"
#include "server/metrics/resident.h"

namespace castor::server {
namespace {

constexpr std::chrono::seconds kLookEvery{2};

// Resident memory beyond the heap's blocks in use: programs, stacks, and free blocks that were not
// returned to the system.
int64_t ResidentBesideBlocks() {
  const struct mallinfo2 heap = mallinfo2();
  return ResidentBytes() - static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

// The same without what starting left free: reading a model takes twice its memory or more.
int64_t ResidentAfterStart() {
  malloc_trim(0);
  return ResidentBesideBlocks();
}

}  // namespace

HeapTrimmer::HeapTrimmer(Periodic& periodic, int64_t kept_bytes)
    : kept_bytes_(kept_bytes), base_(ResidentAfterStart()), task_(periodic, kLookEvery, [this] {
        Trim();
        return kLookEvery;
      }) {}

void HeapTrimmer::Trim() const {
  const int64_t free_bytes = ResidentBesideBlocks() - base_;
  if (free_bytes <= kept_bytes_) return;
  // Returns the pages of free blocks wherever they lie. Allocations wait meanwhile: some 0.1 s a
  // GiB.
  malloc_trim(static_cast<size_t>(kept_bytes_));
  LogInfo("returned free memory to the system",
          {{"bytes", free_bytes - (ResidentBesideBlocks() - base_)}});
}

}  // namespace castor::server
