// The recent rate at which something comes, exponentially decaying. Not thread-safe.
#pragma once

#include <chrono>
#include <cmath>

#include "engine/base/time.h"

namespace castor {

class Throughput {
 public:
  // Events older than a few windows hardly count.
  static constexpr std::chrono::duration<double> kWindow{2.0};

  void Add(double amount, TimePoint now) {
    Decay(now);
    weight_ += amount;
  }

  // Per second. Zero until something was added.
  double Rate(TimePoint now) {
    Decay(now);
    return weight_ / kWindow.count();
  }

 private:
  void Decay(TimePoint now) {
    const std::chrono::duration<double> elapsed = now - last_;
    if (elapsed.count() <= 0) return;  // callers read the clock before they take the lock
    weight_ *= std::exp(-elapsed / kWindow);
    last_ = now;
  }

  double weight_ = 0;
  TimePoint last_{};
};

}  // namespace castor
