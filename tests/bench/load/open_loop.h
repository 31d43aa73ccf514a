// An open-loop generator: calls begin by an absolute schedule, whether or not earlier ones have
// been answered, as they do when callers do not know of one another. Latency counts from the
// intended time, so that a server that stalls does not hide the calls that its stall would delay.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/load/caller.h"
#include "tests/bench/load/outcomes.h"

namespace castor::bench {

struct OpenLoopOptions {
  const char* method = "";
  double rate = 1;       // calls per second
  bool regular = false;  // evenly spaced; otherwise Poisson arrivals
  std::chrono::duration<double> length{10};
  std::chrono::milliseconds deadline{10'000};  // of a call, from its intended time
  std::string tenant{};                        // none if empty
  uint64_t seed = 1;  // of the arrivals, and of which request each call sends
};

// Returns when every call has ended. `stop`, if given, ends the schedule early.
Outcomes RunOpenLoop(Caller& caller, const std::vector<grpc::ByteBuffer>& requests,
                     const OpenLoopOptions& options, const std::atomic<bool>* stop = nullptr);

}  // namespace castor::bench
