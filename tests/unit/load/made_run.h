// Makes runs without sending anything.
#pragma once

#include <chrono>

#include "client/load/results/run_data.h"

namespace castor::load {

// One class "short" at one endpoint, with objectives p99 <= 50 ms and errors <= 1 %.
RunData EmptyRun(int seconds);

struct MadeRequest {
  int second = 0;
  std::chrono::nanoseconds latency{std::chrono::milliseconds(10)};  // from the intended time
  std::chrono::nanoseconds lag{0};
  Outcome outcome = Outcome::kOk;
};
void Count(const MadeRequest& request, RunData& run, int64_t times = 1);

// 60 s of 100 requests a second, 5 or so in flight: VALID, and its objectives are met.
RunData GoodRun(int seconds = 60);

// Latencies of about 10 ms times `slowness`, which vary by `jitter` from second to second.
RunData NoisyRun(double slowness, double jitter, uint64_t seed);

}  // namespace castor::load
