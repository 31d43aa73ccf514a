// Gives memory back that a rush of large messages has left.
#pragma once

#include <cstdint>
#include <thread>

#include "engine/base/mutex.h"

namespace castor::server {

// A thread that gives back what is kept beyond KeptFreeBytes. By itself the allocator gives back
// only the heap's top, and after a rush one block that lives on there holds all the rest. Make it
// when the process serves: what it has resident then is not counted.
class HeapTrimmer {
 public:
  HeapTrimmer();
  ~HeapTrimmer();
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

 private:
  void Run();

  const int64_t base_;  // resident, and not in the heap's blocks, from the start
  Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last
};

}  // namespace castor::server
