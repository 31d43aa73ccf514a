// The time that requests carry: std::chrono::steady_clock's, which is monotonic.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

namespace castor {

using TimePoint = std::chrono::steady_clock::time_point;

inline double Microseconds(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// Classes of times by their size: powers of two of microseconds. The first is also of less and of
// NaN, the last of more.
inline constexpr size_t kTimeClasses = 40;
inline size_t TimeClassOf(double us) {
  return us > 1 ? std::min(static_cast<size_t>(std::ilogb(us)), kTimeClasses - 1) : 0;
}

}  // namespace castor
