// When a failed call is tried again. Pure: no clock, no randomness of its own.
//
// Only UNAVAILABLE is: the server starts, drains or cannot be reached. It does not mean that
// nothing was done, since a connection can break after the request was taken in. The client decides
// which calls may be repeated all the same (client/client.cc). Overload is not retried, since that
// would add to it: RESOURCE_EXHAUSTED carries a hint for the caller, who knows whether the work is
// still worth doing.
#pragma once

#include <grpcpp/support/status_code_enum.h>

#include <chrono>
#include <optional>
#include <string_view>

namespace castor::client {

struct RetryPolicy {
  int max_attempts = 5;  // the first one included; 1 turns retries off
  std::chrono::milliseconds initial_backoff{100};
  std::chrono::milliseconds max_backoff{2000};
  double multiplier = 2;
};

// What ended an attempt.
struct Failure {
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  // The trailer grpc-retry-pushback-ms: the delay that the server asks for, which replaces the
  // backoff. Negative or unreadable means "never again".
  std::optional<std::string_view> pushback = std::nullopt;
  // RetryInfo.retry_delay: the minimum wait, used if there is no pushback.
  std::optional<std::chrono::milliseconds> retry_after = std::nullopt;
};

// The wait before the next attempt, or nullopt to give up. `attempts` were made, the last of which
// ended in `failure`; `remaining` is the time to the call's deadline, within which the next attempt
// must begin; `random` in [0, 1) spreads the retries of clients that failed together.
std::optional<std::chrono::milliseconds> DelayBeforeRetry(const RetryPolicy& policy, int attempts,
                                                          const Failure& failure,
                                                          std::chrono::milliseconds remaining,
                                                          double random);

}  // namespace castor::client
