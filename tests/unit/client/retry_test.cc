#include <gtest/gtest.h>

#include "client/client.h"

namespace castor::client {
namespace {

using std::chrono::milliseconds;
using Delay = std::optional<milliseconds>;

constexpr milliseconds kLong{1'000'000};

Error Unavailable(int attempts, std::optional<milliseconds> retry_after = std::nullopt) {
  Error error;
  error.code = grpc::StatusCode::UNAVAILABLE;
  error.attempts = attempts;
  error.retry_after = retry_after;
  return error;
}

TEST(DelayBeforeRetry, OnlyUnavailableIsTriedAgain) {
  for (int code = 0; code <= static_cast<int>(grpc::StatusCode::UNAUTHENTICATED); ++code) {
    Error error = Unavailable(1);
    error.code = static_cast<grpc::StatusCode>(code);
    EXPECT_EQ(DelayBeforeRetry({}, error, std::nullopt, kLong, 0.5).has_value(),
              error.code == grpc::StatusCode::UNAVAILABLE)
        << code;
  }
}

TEST(DelayBeforeRetry, FollowsThePolicyTheServerAndTheDeadline) {
  const RetryPolicy six = {.max_attempts = 6, .max_backoff = milliseconds(500)};
  const struct {
    const char* what;
    RetryPolicy policy;
    Error error;
    std::optional<std::string_view> pushback;
    milliseconds remaining;
    double random;
    Delay delay;
  } kCases[] = {
      {"first", six, Unavailable(1), {}, kLong, 1, milliseconds(100)},
      {"doubled", six, Unavailable(3), {}, kLong, 1, milliseconds(400)},
      {"at the bound", six, Unavailable(5), {}, kLong, 1, milliseconds(500)},
      {"the last attempt", six, Unavailable(6), {}, kLong, 1, std::nullopt},
      {"jitter", six, Unavailable(1), {}, kLong, 0, milliseconds(50)},
      {"no bound on attempts", {}, Unavailable(1000), {}, kLong, 1, milliseconds(2000)},
      {"off", {.max_attempts = 1}, Unavailable(1), {}, kLong, 1, std::nullopt},
      {"at the deadline", {}, Unavailable(1), {}, milliseconds(100), 1, std::nullopt},
      {"before it", {}, Unavailable(1), {}, milliseconds(101), 1, milliseconds(100)},
      {"after it", {}, Unavailable(1), {}, milliseconds(-5), 1, std::nullopt},
      {"pushback", {}, Unavailable(1), "777", kLong, 1, milliseconds(777)},
      {"pushback of 0", {}, Unavailable(1), "0", kLong, 1, milliseconds(0)},
      {"again: it must not spin", {}, Unavailable(2), "0", kLong, 1, milliseconds(100)},
      {"retry_after", {}, Unavailable(1, milliseconds(700)), {}, kLong, 1, milliseconds(700)},
      {"a short one", {}, Unavailable(1, milliseconds(7)), {}, kLong, 1, milliseconds(100)},
      {"pushback first", {}, Unavailable(1, milliseconds(7)), "3", kLong, 1, milliseconds(3)},
  };
  for (const auto& it : kCases) {
    EXPECT_EQ(DelayBeforeRetry(it.policy, it.error, it.pushback, it.remaining, it.random), it.delay)
        << it.what;
  }
  for (const char* never : {"-1", "", "soon", "5ms", "99999999999"}) {
    EXPECT_EQ(DelayBeforeRetry({}, Unavailable(1), never, kLong, 1), std::nullopt) << never;
  }
}

}  // namespace
}  // namespace castor::client
