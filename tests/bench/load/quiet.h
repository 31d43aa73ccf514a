// When does a server stop computing? Seen from outside, by the processor time it takes.
#pragma once

#include <chrono>
#include <optional>

#include "tests/bench/load/caller.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {

// Milliseconds from `since` until the server, sampled every 2 ms, began 100 ms in which it used
// less than 5 % of one processor; nullopt if it had not by `limit`. The kernel brings a running
// thread's time up to date once a tick, so the figure may be a tick (1 to 10 ms) too large.
std::optional<double> MillisecondsUntilQuiet(const ServerProcess& server, Clock::time_point since,
                                             std::chrono::seconds limit);

}  // namespace castor::bench
