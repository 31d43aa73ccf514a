// How much of the device has been promised of late, and how irregularly: exponentially decaying
// sums over the requests that were admitted. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/base/time.h"

namespace castor {

class Promises {
 public:
  // Requests older than a few windows hardly count.
  explicit Promises(std::chrono::duration<double> window) : window_(window) {}

  // A request that is predicted to take so much of the device.
  void Add(double us, TimePoint now) {
    const double left = Left(now);
    const double seconds = us * 1e-6;
    seconds_ = left * seconds_ + seconds;
    squares_ = left * squares_ + seconds * seconds;
    last_ = std::max(last_, now);  // callers read the clock before they take the lock
  }

  // In a second, if requests are independent: the mean of what they take, in seconds, and its
  // variance. Zero until something was added.
  struct Rate {
    double mean = 0;
    double variance = 0;

    Rate& operator+=(const Rate& other) {
      mean += other.mean;
      variance += other.variance;
      return *this;
    }
    Rate& operator-=(const Rate& other) {
      mean -= other.mean;
      variance -= other.variance;
      return *this;
    }
  };
  Rate At(TimePoint now) const {
    const double per_second = Left(now) / window_.count();
    return {.mean = per_second * seconds_, .variance = per_second * squares_};
  }

 private:
  // The part of the sums that still counts.
  double Left(TimePoint now) const {
    const std::chrono::duration<double> elapsed = now - last_;
    return elapsed.count() <= 0 ? 1 : std::exp(-elapsed / window_);
  }

  std::chrono::duration<double> window_;
  double seconds_ = 0;
  double squares_ = 0;  // of each request's seconds
  TimePoint last_{};
};

}  // namespace castor
