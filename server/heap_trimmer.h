// Returns the memory that a burst of large messages leaves behind.
#pragma once

#include <cstdint>
#include <thread>

#include "engine/base/mutex.h"

namespace castor::server {

// A thread that returns free memory beyond `kept_bytes`. By itself the allocator returns only the
// heap's top, and after a burst a single live block there can hold all the rest. Construct it when
// the process serves: it returns what the start left free, and does not count what stays resident.
class HeapTrimmer {
 public:
  explicit HeapTrimmer(int64_t kept_bytes);
  ~HeapTrimmer();
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

 private:
  void Run();

  const int64_t kept_bytes_;
  const int64_t base_;  // resident, and not in the heap's blocks, from the start
  Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last
};

}  // namespace castor::server
