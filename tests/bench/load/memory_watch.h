// Watches how much memory a server holds, in a thread of its own.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/load/server_process.h"

namespace castor::bench {

class MemoryWatch {
 public:
  explicit MemoryWatch(const ServerProcess& server);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // Stops. "120 to 130, at most 140 MiB; slope 0.5 MiB/s": the slope of a least-squares line over
  // all but the first second.
  std::string Describe();

 private:
  struct Sample {
    double seconds, mib;
  };
  void Stop();

  std::atomic<bool> stop_ = false;
  std::vector<Sample> samples_;  // the thread's, until it ends
  std::thread thread_;
};

}  // namespace castor::bench
