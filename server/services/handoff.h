// Orders what several threads do to one call, each after the other.
//
// A handler, a completion and gRPC's callbacks touch a call's members in turn. gRPC orders them, by
// means that ThreadSanitizer does not see in an uninstrumented library; this says the same where it
// can be seen, and where no reader need know gRPC's own.
#pragma once

#include <atomic>

namespace castor::server {

class Handoff {
 public:
  // All that this thread has done so far is seen by whoever takes over.
  void HandOver() { turns_.fetch_add(1, std::memory_order_release); }
  // Sees what was done before each HandOver so far.
  void TakeOver() const { static_cast<void>(turns_.load(std::memory_order_acquire)); }

 private:
  std::atomic<int> turns_ = 0;
};

}  // namespace castor::server
