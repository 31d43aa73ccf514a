// The time that requests carry: std::chrono::steady_clock's, which is monotonic.
#pragma once

#include <chrono>

namespace castor {

using TimePoint = std::chrono::steady_clock::time_point;

inline double Microseconds(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

}  // namespace castor
