// A job that sends nothing: what castor-load's workers are tested with.
#pragma once

#include <cstdint>
#include <string>

#include "client/load/workers/job.h"

namespace castor::testing {

inline constexpr char kFakeVersion[] = "9.8.7";

// The plan is a number of requests, in `workload_toml`. Request i has a latency of i us, and the
// worker's own requests are those whose number modulo the number of workers is its index. What the
// job does is flag "mode":
//   count            returns at once
//   until-stopped    tells its progress, with itself as the only request in flight, until stopped
//   fail-in-prepare, fail-in-run
//                    throws, on worker 1 alone; others are as until-stopped
load::RunJob PrepareFake(const load::Job& job);

// What all of the plan's requests are together.
load::RunData WholeFake(int64_t requests);

// Of begins that in-process workers were given, in order.
std::vector<std::chrono::steady_clock::time_point> TakeFakeBegins();

}  // namespace castor::testing
