// The recent rate at which something comes, exponentially decaying. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/base/time.h"

namespace castor {

class Throughput {
 public:
  // Events older than a few windows hardly count.
  explicit Throughput(std::chrono::duration<double> window) : window_(window) {}

  void Add(double amount, TimePoint now) {
    weight_ = Left(now) + amount;
    last_ = std::max(last_, now);  // callers read the clock before they take the lock
  }

  // Per second. Zero until something was added.
  double Rate(TimePoint now) const { return Left(now) / window_.count(); }

 private:
  double Left(TimePoint now) const {
    const std::chrono::duration<double> elapsed = now - last_;
    return elapsed.count() <= 0 ? weight_ : weight_ * std::exp(-elapsed / window_);
  }

  std::chrono::duration<double> window_;
  double weight_ = 0;
  TimePoint last_{};
};

}  // namespace castor
