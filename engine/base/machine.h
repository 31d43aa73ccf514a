// The processors and memory that this process may use, as bounded by the scheduler, cgroups
// (containers) and resource limits. They determine the sizes of thread teams and the defaults of
// budgets.
//
// Thread-safe. Each value is read once, on the first call: later changes need a restart.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace castor {

// The number of processors that the process may run on, or its cgroup's quota of processor time,
// rounded up, if that is less. At least 1.
int AvailableProcessors();

// The minimum of the machine's memory, the limits of the cgroups, RLIMIT_AS and RLIMIT_DATA.
int64_t MemoryLimitBytes();

// A default for a memory budget: `most`, but no more than the memory limit divided by `parts`.
// Whole MiB, at least 1.
int64_t MemoryShare(int64_t most, int64_t parts);

// The limits of the process's cgroups, and of those above them as far as they are mounted.
struct CgroupLimits {
  double processors = std::numeric_limits<double>::infinity();  // quota / period
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// Reads ROOT/proc/self/cgroup and mountinfo, and the cgroups that they name, also below `root`: ""
// is this machine; tests use folders. Understands cgroup versions 1 and 2, also both at once.
// Ignores a limit that cannot be read or parsed.
CgroupLimits ReadCgroupLimits(const std::string& root);

}  // namespace castor
