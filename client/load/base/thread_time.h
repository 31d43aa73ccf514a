#pragma once

#include <time.h>

#include <chrono>

namespace castor::load {

// Processor time that the calling thread has taken.
inline std::chrono::nanoseconds ThisThreadsTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace castor::load
