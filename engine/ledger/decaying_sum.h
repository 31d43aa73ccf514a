// A sum that forgets: an amount that was added a window ago counts for 1/e. An exponentially
// weighted moving average (Roberts, 1959) of events in continuous time. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/base/clock.h"

namespace castor {

class DecayingSum {
 public:
  explicit DecayingSum(std::chrono::duration<double> window) : window_(window) {}

  void Add(double value, TimePoint now) {
    sum_ = At(now) + value;
    last_ = std::max(last_, now);  // callers read the clock before they take the lock
  }

  double At(TimePoint now) const {
    const std::chrono::duration<double> elapsed = now - last_;
    return elapsed.count() <= 0 ? sum_ : sum_ * std::exp(-elapsed / window_);
  }

  // The mean amount that is added in a second.
  double PerSecond(TimePoint now) const { return At(now) / window_.count(); }

 private:
  std::chrono::duration<double> window_;
  double sum_ = 0;
  TimePoint last_{};
};

}  // namespace castor
