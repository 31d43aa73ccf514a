#include "server/lifecycle/environment.h"

#include <alloca.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <limits>

#include "engine/base/machine.h"

namespace castor::server {
namespace {

// Before libraries initialise themselves, the functions that a sanitizer replaces cannot be called.
#define CASTOR_BEFORE_LIBRARIES __attribute__((no_sanitize("address", "thread", "undefined")))

CASTOR_BEFORE_LIBRARIES bool Sets(const char* entry, const char* name) {
  for (; *name != '\0'; ++entry, ++name) {
    if (*entry != *name) return false;
  }
  return *entry == '=';
}

}  // namespace

CASTOR_BEFORE_LIBRARIES void SetEnvironment(char** argv, char** environment) {
  // Some tens of microseconds: long enough to bridge the gap between two layers of a model, and
  // short compared with any batch.
  static char spinning[] = "GOMP_SPINCOUNT=3000";
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    const char* const entry = environment[count];
    if (Sets(entry, "GOMP_SPINCOUNT") || Sets(entry, "OMP_WAIT_POLICY")) return;
  }
  char program[PATH_MAX];
  const long length = syscall(SYS_readlink, "/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) return;  // without /proc only the settings are lost
  program[length] = '\0';
  char* volatile* const with = static_cast<char* volatile*>(alloca((count + 2) * sizeof(char*)));
  for (size_t i = 0; i < count; ++i) with[i] = environment[i];
  with[count] = spinning;
  with[count + 1] = nullptr;
  syscall(SYS_execve, program, argv, with);
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
