#include "server/tracing/span_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace castor::server {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

std::unique_ptr<RequestTrace> Refused(const std::string& message = "") {
  auto trace = std::make_unique<RequestTrace>();
  trace->message = message;
  return trace;
}

std::unique_ptr<RequestTrace> Ran() {
  auto trace = std::make_unique<RequestTrace>();
  trace->ran = true;
  trace->timing.copy_in_us = trace->timing.copy_out_us = 1;
  return trace;
}

TEST(SpanQueueTest, IsBoundedInSpans) {
  SpanQueue queue(/*max_spans=*/17, /*max_bytes=*/1 << 20, /*max_batch=*/100);
  EXPECT_TRUE(queue.Add(Ran()));
  EXPECT_TRUE(queue.Add(Ran()));
  EXPECT_FALSE(queue.Add(Ran())) << "eight more";
  EXPECT_TRUE(queue.Add(Refused())) << "one more";
  EXPECT_FALSE(queue.Add(Refused()));
  RequestTraces taken;
  EXPECT_TRUE(queue.Take(nanoseconds(0), TimePoint::max(), &taken));
  EXPECT_EQ(taken.size(), 3U);
  EXPECT_TRUE(queue.Add(Ran())) << "there is room again";
}

TEST(SpanQueueTest, IsBoundedInBytes) {
  const int64_t each = SizeBytes(*Refused(std::string(5000, 'x')));
  SpanQueue queue(1000, 2 * each, 100);
  EXPECT_TRUE(queue.Add(Refused(std::string(5000, 'x'))));
  EXPECT_TRUE(queue.Add(Refused(std::string(5000, 'x'))));
  EXPECT_FALSE(queue.Add(Refused()));
  RequestTraces taken;
  queue.Take(nanoseconds(0), TimePoint::max(), &taken);
  EXPECT_TRUE(queue.Add(Refused(std::string(5000, 'x'))));
}

TEST(SpanQueueTest, ABatchIsTakenAtATime) {
  SpanQueue queue(1000, 1 << 20, /*max_batch=*/8);
  for (int i = 0; i < 3; ++i) queue.Add(Ran());
  RequestTraces taken;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(queue.Take(hours(1), TimePoint::max(), &taken)) << "a whole one is not waited for";
    EXPECT_EQ(taken.size(), 1U);
  }
}

TEST(SpanQueueTest, WhatIsLeftIsTakenAfterTheEnd) {
  SpanQueue queue(1000, 1 << 20, 8);
  for (int i = 0; i < 3; ++i) queue.Add(Ran());
  queue.Close();
  EXPECT_FALSE(queue.Add(Ran()));
  RequestTraces taken;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(queue.Take(hours(1), TimePoint::max(), &taken));
    EXPECT_EQ(taken.size(), 1U);
  }
  EXPECT_FALSE(queue.Take(hours(1), TimePoint::max(), &taken));
}

TEST(SpanQueueTest, WakesForTheFirstAWholeBatchAndTheEnd) {
  SpanQueue queue(1000, 1 << 20, /*max_batch=*/16);
  RequestTraces taken;
  EXPECT_TRUE(queue.Take(hours(1), std::chrono::steady_clock::now(), &taken)) << "its own time";
  EXPECT_TRUE(taken.empty());
  std::thread adds([&] {
    queue.Add(Ran());
    queue.Add(Ran());
  });
  EXPECT_TRUE(queue.Take(hours(1), TimePoint::max(), &taken));
  EXPECT_EQ(taken.size(), 2U);
  adds.join();
  std::thread closes([&] { queue.Close(); });
  EXPECT_FALSE(queue.Take(hours(1), TimePoint::max(), &taken));
  closes.join();
}

}  // namespace
}  // namespace castor::server
