// `castor top` itself: rounds of readings, and frames of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "client/top/fleet.h"

namespace castor::top {

struct LiveOptions {
  std::chrono::milliseconds interval{1000};
  std::optional<int64_t> count{};  // of frames that show an interval; nullopt: without end
};

// On the terminal that standard output is, with the keys of standard input if that is one. Returns
// when q or Ctrl-C was pressed or after `count` frames. Ends the process by the signal, as if it
// had not been caught, after SIGTERM, SIGHUP and SIGQUIT.
void ShowLive(Fleet* fleet, const LiveOptions& options);

// As text on standard output, a frame after each interval, until one cannot be written.
absl::Status PrintFrames(Fleet* fleet, const LiveOptions& options);

}  // namespace castor::top
