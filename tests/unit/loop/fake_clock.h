// A clock that stands still until a test moves it.
#pragma once

#include <chrono>
#include <set>
#include <utility>

#include "engine/base/clock.h"

namespace castor {

class FakeClock : public Clock {
 public:
  TimePoint Now() const override {
    MutexLock lock(mu_);
    return now_;
  }

  // Records the waiters, so that Advance can wake them. Waiters are never removed: a needless
  // wake-up is harmless, and they outlive every Advance of a test.
  void WaitUntil(CondVar& cv, Mutex& mu, TimePoint when) override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    {
      MutexLock lock(mu_);
      if (now_ >= when) return;
      waiters_.insert({&cv, &mu});
    }
    cv.Wait(mu);
  }

  void Advance(std::chrono::nanoseconds by) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::set<std::pair<CondVar*, Mutex*>> waiters;
    {
      MutexLock lock(mu_);
      now_ += by;
      waiters = waiters_;
    }
    for (auto [cv, mu] : waiters) {
      mu->Lock();  // a waiter that has read the clock is now inside Wait
      cv->NotifyAll();
      mu->Unlock();
    }
  }

 private:
  mutable Mutex mu_;
  TimePoint now_ ABSL_GUARDED_BY(mu_) = TimePoint(std::chrono::hours(1));
  std::set<std::pair<CondVar*, Mutex*>> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace castor
