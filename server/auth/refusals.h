// Calls and scrapes that were not let in: counted by reason, and told in the log, though not one by
// one: whoever can be refused can be refused a million times. Never with what was presented.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/metrics/metrics_access.h"

namespace castor::server {

// Any thread may call anything.
class Refusals {
 public:
  explicit Refusals(AccessMetrics& metrics) : metrics_(metrics) {}

  // Counts one, and returns the error for the caller. `who` is the caller's name where it is known,
  // `what` the method.
  absl::Status Refuse(RefusedCaller reason, std::string_view who, std::string_view what,
                      std::string_view peer);

 private:
  struct Told {
    std::chrono::steady_clock::time_point last{};
    int64_t since = 0;  // refusals since the last line
  };

  AccessMetrics& metrics_;

  Mutex mu_;
  std::array<Told, kRefusedCallers> told_ ABSL_GUARDED_BY(mu_);
};

}  // namespace castor::server
