// Makes what one thread does to a call visible to the next thread that uses the call.
//
// A handler, a completion and gRPC's callbacks touch a call's members in turn. gRPC orders them
// already, but ThreadSanitizer cannot see how in an uninstrumented library. This class states the
// order where ThreadSanitizer and readers can see it.
#pragma once

#include <atomic>

namespace castor::server {

class Handoff {
 public:
  // Publishes everything that this thread has done so far.
  void HandOver() { turns_.fetch_add(1, std::memory_order_release); }
  // Sees everything that was done before each earlier HandOver.
  void TakeOver() const { static_cast<void>(turns_.load(std::memory_order_acquire)); }

 private:
  std::atomic<int> turns_ = 0;
};

}  // namespace castor::server
