// How the process's allocator treats memory that large messages come and go in.
#pragma once

#include <cstdint>
#include <thread>

#include "engine/base/mutex.h"

namespace castor::server {

// Keeps freed memory for the next message instead of handing every block back to the system: gRPC
// allocates the slices of each message afresh, and by default half of the time that a message of
// some MiB costs goes into faulting its pages in again. At most 1 GiB of free memory, or an
// eighth of the memory limit, is kept: 32 requests of 2,048 tokens, 8 heads of 64 in fp32, are
// 512 MiB. Call once, before threads start.
void KeepFreedMemory();

// A thread that gives back what is kept beyond that. By itself the allocator gives back only the
// heap's top, and after a rush one block that lives on there holds all the rest. Make it when the
// process serves: what it has resident then is not counted.
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
