// Counts requests that were admitted and whose completion has not returned yet; draining waits for
// zero. Thread-safe.
#pragma once

#include <cstdint>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"

namespace castor {

class Outstanding {
 public:
  explicit Outstanding(Clock& clock) : clock_(clock) {}

  void Add() noexcept {
    MutexLock lock(mu_);
    ++count_;
  }

  void Done() noexcept {
    MutexLock lock(mu_);
    if (--count_ == 0) zero_.NotifyAll();
  }

  // False when the deadline came first.
  bool WaitForZero(TimePoint deadline) {
    MutexLock lock(mu_);
    while (count_ > 0 && clock_.Now() < deadline) clock_.WaitUntil(zero_, mu_, deadline);
    return count_ == 0;
  }

 private:
  Clock& clock_;
  Mutex mu_;
  CondVar zero_;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace castor
