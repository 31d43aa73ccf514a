// What this process may use of its machine: processors and memory, as the scheduler, cgroups
// (containers), and resource limits bound them. Sizes of thread teams and defaults of budgets
// follow from it.
//
// Thread-safe. Read once, when first asked: a limit that changes later is seen by the next start.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace castor {

// The processors that the process may run on, or fewer if a cgroup grants it the time of fewer,
// rounded up. At least 1.
int AvailableProcessors();

// The least of the machine's memory, the limits of its cgroups, RLIMIT_AS and RLIMIT_DATA.
int64_t MemoryLimitBytes();

// A default for a memory budget: `most`, but no more than the memory limit divided by `parts`.
// Whole MiB, at least 1.
int64_t MemoryShare(int64_t most, int64_t parts);

// The limits of the process's cgroups, and of those above them as far as they are mounted.
struct CgroupLimits {
  double processors = std::numeric_limits<double>::infinity();  // quota / period
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// Reads ROOT/proc/self/cgroup and mountinfo, and the cgroups where they say, below `root` too: ""
// is this machine, tests have folders. Understands versions 1 and 2, also side by side. A limit
// that cannot be read or parsed is ignored.
CgroupLimits ReadCgroupLimits(const std::string& root);

}  // namespace castor
