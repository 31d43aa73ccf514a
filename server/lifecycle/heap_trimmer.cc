#include "server/lifecycle/heap_trimmer.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "server/logging.h"

namespace castor::server {
namespace {

constexpr std::chrono::seconds kCheckInterval{2};

// Resident bytes of the process; 0 if /proc cannot be read. Takes some microseconds.
int64_t ResidentBytes() {
  const int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (statm < 0) return 0;
  char text[128] = {};
  const ssize_t got = read(statm, text, sizeof(text) - 1);
  close(statm);
  long long total = 0;
  long long resident = 0;
  if (got <= 0 || std::sscanf(text, "%lld %lld", &total, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

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
    : kept_bytes_(kept_bytes), base_(ResidentAfterStart()), task_(periodic, kCheckInterval, [this] {
        Trim();
        return kCheckInterval;
      }) {}

bool Idleness::Update(double cpu_seconds) {
  constexpr double kLittle = 0.04;  // such as scrapes take
  idle_looks_ = cpu_seconds - last_ < kLittle ? idle_looks_ + 1 : 0;
  last_ = cpu_seconds;
  return idle_looks_ == kLooks;
}

void HeapTrimmer::Trim() {
  const int64_t free_bytes = ResidentBesideBlocks() - base_;
  const bool idle = idleness_.Update(static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
  const int64_t kept_bytes = idle ? 0 : kept_bytes_;
  if (free_bytes <= kept_bytes) return;
  // Returns the pages of free blocks wherever they lie. Allocations wait meanwhile: some 0.1 s a
  // GiB.
  malloc_trim(static_cast<size_t>(kept_bytes));
  LogInfo("returned free memory to the system",
          {{"bytes", free_bytes - (ResidentBesideBlocks() - base_)}});
}

}  // namespace castor::server
