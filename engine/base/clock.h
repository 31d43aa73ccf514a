// The engine's monotonic clock, replaceable so that tests of deadlines and delays never sleep.
//
// Thread-safe. Everything in the engine that reads the time or waits for a time does it here.
#pragma once

#include <chrono>

#include "engine/base/mutex.h"
#include "engine/base/time.h"

namespace castor {

class Clock {
 public:
  virtual ~Clock() = default;

  virtual TimePoint Now() const = 0;

  // Waits on `cv` until it is notified or the time has come (TimePoint::max(): for ever). Spurious
  // wake-ups are possible.
  virtual void WaitUntil(CondVar& cv, Mutex& mu, TimePoint when)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) = 0;
};

class SystemClock : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }

  void WaitUntil(CondVar& cv, Mutex& mu, TimePoint when) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (when == TimePoint::max()) {
      cv.Wait(mu);
    } else {
      cv.WaitUntil(mu, when);
    }
  }
};

}  // namespace castor
