// Every time of a run is on this clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace castor::load {

using Clock = std::chrono::steady_clock;

inline int64_t NanosBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

}  // namespace castor::load
