// Watches how much memory a server holds, in a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/load/least_squares.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {

class MemoryWatch {
 public:
  explicit MemoryWatch(const ServerProcess& server,
                       std::chrono::milliseconds interval = std::chrono::milliseconds(50));
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // Stops. Seconds since it began, and resident MiB.
  const std::vector<Point>& Samples();

  // Stops. "120 to 130, at most 140 MiB; slope 0.5 MiB/s": the slope of a least-squares line over
  // all but the first second.
  std::string Describe();

 private:
  void Stop();

  std::atomic<bool> stop_ = false;
  std::vector<Point> samples_;  // the thread's, until it ends
  std::thread thread_;
};

}  // namespace castor::bench
