// Returns the memory that a burst of large messages leaves behind.
#pragma once

#include <cstdint>

#include "server/lifecycle/periodic.h"

namespace castor::server {

// Returns free memory beyond `kept_bytes`, every two seconds. By itself the allocator returns only
// the heap's top, and after a burst a single live block there can hold all the rest. Construct it
// when the process serves: it returns what the start left free, and does not count what stays
// resident.
class HeapTrimmer {
 public:
  HeapTrimmer(Periodic& periodic, int64_t kept_bytes);

 private:
  void Trim() const;

  const int64_t kept_bytes_;
  const int64_t base_;  // resident, and not in the heap's blocks, from the start
  const Periodic::Task task_;
};

}  // namespace castor::server
