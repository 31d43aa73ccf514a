#include "client/retry.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace castor::client {

using std::chrono::milliseconds;

std::optional<milliseconds> DelayBeforeRetry(const RetryPolicy& policy, int attempts,
                                             const Failure& failure, milliseconds remaining,
                                             double random) {
  if (failure.code != grpc::StatusCode::UNAVAILABLE || attempts >= policy.max_attempts) {
    return std::nullopt;
  }
  milliseconds delay;
  if (failure.pushback.has_value()) {
    int32_t wished = 0;
    const char* end = failure.pushback->data() + failure.pushback->size();
    const auto [rest, error] = std::from_chars(failure.pushback->data(), end, wished);
    if (error != std::errc() || rest != end || wished < 0) return std::nullopt;
    delay = milliseconds(wished);
  } else {
    const double backoff = std::min(static_cast<double>(policy.max_backoff.count()),
                                    static_cast<double>(policy.initial_backoff.count()) *
                                        std::pow(policy.multiplier, std::max(0, attempts - 1)));
    delay = milliseconds(std::llround(backoff * (0.5 + 0.5 * random)));
    delay = std::max(delay, failure.retry_after.value_or(delay));
  }
  if (delay >= remaining) return std::nullopt;
  return delay;
}

}  // namespace castor::client
