#include "server/lifecycle/environment.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <limits>

#include "engine/base/machine.h"

namespace castor::server {
namespace {

// Some tens of microseconds: long enough to bridge the gap between two layers of a model, and short
// compared with any batch.
constexpr char kSpinIterations[] = "3000";

bool SetSpinning() {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) {
    return false;
  }
  setenv("GOMP_SPINCOUNT", kSpinIterations, /*overwrite=*/1);
  return true;
}

}  // namespace

void SetEnvironment(char** argv) {
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) return;  // without /proc only the settings are lost
  program[length] = '\0';
  if (SetSpinning()) execv(program, argv);
}

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
