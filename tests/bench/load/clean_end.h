// Does a server put everything away when its calls have ended, and end itself?
#pragma once

#include <string>

#include "tests/bench/load/report.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {

// Checks that the gauges of what is in flight or queued are 0. Callers get their answers a little
// before the server has put everything away: it gets two seconds.
void CheckNothingLeftBehind(const ServerProcess& server, Report& report);

// Waits up to a minute for the end of a server that was asked to end, and checks its exit code.
void CheckDrained(ServerProcess& server, Report& report);

}  // namespace castor::bench
