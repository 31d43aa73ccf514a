// The engine's monotonic clock, replaceable so that tests of deadlines and delays never sleep.
//
// Thread-safe. All code of the engine that reads the time or waits for a time uses it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

#include "engine/base/mutex.h"

namespace castor {

// The time that requests carry: std::chrono::steady_clock's, which is monotonic.
using TimePoint = std::chrono::steady_clock::time_point;

inline double Microseconds(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// Size classes of times: powers of two of microseconds. The first class includes smaller times and
// NaN, the last one larger times.
inline constexpr size_t kTimeClasses = 40;
inline size_t TimeClassOf(double us) {
  return us > 1 ? std::min(static_cast<size_t>(std::ilogb(us)), kTimeClasses - 1) : 0;
}

class Clock {
 public:
  virtual ~Clock() = default;

  virtual TimePoint Now() const = 0;

  // Waits on `cv` until it is notified or the time `when` has come; TimePoint::max(): no time
  // limit. Spurious wake-ups are possible.
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
