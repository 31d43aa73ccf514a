// Keeps a fixed number of asynchronous calls in flight, as a saturating client does.
#pragma once

#include <functional>

#include "engine/base/mutex.h"

namespace castor::bench {

class Pump {
 public:
  explicit Pump(int window) : window_(window) {}

  // Starts calls 0..count-1 in order, keeping `window` in flight, and returns when all have ended.
  // `start` gets the call's number and a function to invoke once, on any thread, when the call has
  // ended.
  void Run(int count, const std::function<void(int, std::function<void()>)>& start) {
    for (int i = 0; i < count; ++i) {
      WaitUntilBelow(window_);
      {
        MutexLock lock(mu_);
        ++in_flight_;
      }
      start(i, [this] {
        MutexLock lock(mu_);
        --in_flight_;
        changed_.NotifyOne();
      });
    }
    WaitUntilBelow(1);
  }

 private:
  void WaitUntilBelow(int limit) {
    MutexLock lock(mu_);
    while (in_flight_ >= limit) changed_.Wait(mu_);
  }

  const int window_;
  Mutex mu_;
  CondVar changed_;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace castor::bench
