// What this client can send, measured against an echo in this process: a run that asks for more
// says more of the client than of the server.
#pragma once

#include <chrono>

#include "client/load/drive/driver.h"

namespace castor::load {

struct Calibration {
  double rate = 0;                        // requests per second
  double lag_p50_us = 0, lag_p99_us = 0;  // of a schedule at a quarter of that rate
  double cpu_us = 0;                      // processor time per request, the echo's share among it
};

// Sends the requests of `driver`, which must be prepared, for `length` as fast as they are
// answered, and then by a schedule for as long.
Calibration Calibrate(const Driver& driver, int lanes, int connections,
                      std::chrono::nanoseconds length);

}  // namespace castor::load
