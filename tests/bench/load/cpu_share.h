// What a call takes of a one-processor server's processor beside its share of the computing.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "tests/bench/load/report.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {

// Of all processor time. Seconds of computing would not do: they are the clock's, and what waits
// for the processor is among them.
class CpuShare {
 public:
  void Add(const CpuTimes& before, const CpuTimes& after);
  void Note(const std::string& name, size_t calls, Report& report) const;

 private:
  std::chrono::nanoseconds all_{0};
  std::chrono::nanoseconds computing_{0};  // the busiest thread's: on one processor, one computes
  std::chrono::nanoseconds grpc_{0};       // its threads', handlers included
};

}  // namespace castor::bench
