// Returns the memory that a burst of large messages leaves behind.
#pragma once

#include <cstdint>

#include "server/lifecycle/periodic.h"

namespace castor::server {

// Whether the process is idle, by its processor time at each update.
class Idleness {
 public:
  // With 2 s between updates, 50 s: the engine has then given back its staging memory.
  static constexpr int kLooks = 25;

  // True once, when the process has been idle for kLooks updates.
  bool Update(double cpu_seconds);

 private:
  double last_ = 0;
  int idle_looks_ = 0;
};

// Returns free memory beyond `kept_bytes`, every two seconds, and all of it once the process has
// been idle for 50 s. By itself the allocator returns only the heap's top, and after a burst a
// single live block there can hold all the rest. Construct it when the process serves: it returns
// what the start left free, and does not count what stays resident.
class HeapTrimmer {
 public:
  HeapTrimmer(Periodic& periodic, int64_t kept_bytes);

 private:
  void Trim();

  const int64_t kept_bytes_;
  const int64_t base_;  // resident, and not in the heap's blocks, from the start
  Idleness idleness_;
  const Periodic::Task task_;
};

}  // namespace castor::server
