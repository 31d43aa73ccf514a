#include <gtest/gtest.h>

#include "client/client.h"

namespace castor::client {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{1'000'000};

TEST(DelayBeforeRetry, OnlyUnavailableIsTriedAgain) {
  const RetryPolicy policy;
  for (int code = 0; code <= static_cast<int>(grpc::StatusCode::UNAUTHENTICATED); ++code) {
    const Failure failure{.code = static_cast<grpc::StatusCode>(code), .pushback = std::nullopt};
    EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, kLong, 0.5).has_value(),
              failure.code == grpc::StatusCode::UNAVAILABLE)
        << code;
  }
}

TEST(DelayBeforeRetry, GrowsToABoundAndEndsAfterTheLastAttempt) {
  const RetryPolicy policy{.max_attempts = 6,
                           .initial_backoff = milliseconds(100),
                           .max_backoff = milliseconds(500),
                           .multiplier = 2};
  const Failure failure{.code = grpc::StatusCode::UNAVAILABLE, .pushback = std::nullopt};
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, kLong, 1), milliseconds(100));
  EXPECT_EQ(DelayBeforeRetry(policy, 2, failure, kLong, 1), milliseconds(200));
  EXPECT_EQ(DelayBeforeRetry(policy, 3, failure, kLong, 1), milliseconds(400));
  EXPECT_EQ(DelayBeforeRetry(policy, 4, failure, kLong, 1), milliseconds(500));
  EXPECT_EQ(DelayBeforeRetry(policy, 5, failure, kLong, 1), milliseconds(500));
  EXPECT_EQ(DelayBeforeRetry(policy, 6, failure, kLong, 1), std::nullopt);
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, kLong, 0), milliseconds(50)) << "jitter";
}

TEST(DelayBeforeRetry, GoesOnUntilTheDeadlineUnlessToldOtherwise) {
  const RetryPolicy policy;
  const Failure failure{.code = grpc::StatusCode::UNAVAILABLE, .pushback = std::nullopt};
  EXPECT_EQ(DelayBeforeRetry(policy, 1000, failure, kLong, 1), policy.max_backoff);
  EXPECT_EQ(DelayBeforeRetry({.max_attempts = 1}, 1, failure, kLong, 1), std::nullopt);
}

TEST(DelayBeforeRetry, NeverWaitsPastTheDeadline) {
  const RetryPolicy policy;
  const Failure failure{.code = grpc::StatusCode::UNAVAILABLE, .pushback = std::nullopt};
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, milliseconds(100), 1), std::nullopt);
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, milliseconds(101), 1), milliseconds(100));
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, milliseconds(-5), 1), std::nullopt);
}

TEST(DelayBeforeRetry, ThePushbackReplacesTheBackoff) {
  const RetryPolicy policy;
  auto delay = [&](std::string_view pushback) {
    const Failure failure{.code = grpc::StatusCode::UNAVAILABLE, .pushback = pushback};
    return DelayBeforeRetry(policy, 1, failure, kLong, 0.5);
  };
  EXPECT_EQ(delay("0"), milliseconds(0));
  const Failure again{.code = grpc::StatusCode::UNAVAILABLE, .pushback = "0"};
  EXPECT_EQ(DelayBeforeRetry(policy, 2, again, kLong, 0.5), policy.initial_backoff)
      << "a server that always says 0 keeps nobody spinning";
  EXPECT_EQ(delay("777"), milliseconds(777));
  for (const char* never : {"-1", "", "soon", "5ms", "99999999999"}) {
    EXPECT_EQ(delay(never), std::nullopt) << never;
  }
}

TEST(DelayBeforeRetry, WaitsAtLeastAsLongAsTheServerAsksFor) {
  const RetryPolicy policy;
  Failure failure{.code = grpc::StatusCode::UNAVAILABLE,
                  .pushback = std::nullopt,
                  .retry_after = milliseconds(700)};
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, kLong, 1), milliseconds(700));
  failure.retry_after = milliseconds(7);
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, kLong, 1), milliseconds(100));
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, milliseconds(50), 1), std::nullopt);
  failure.pushback = "3";
  EXPECT_EQ(DelayBeforeRetry(policy, 1, failure, kLong, 1), milliseconds(3));
}

}  // namespace
}  // namespace castor::client
