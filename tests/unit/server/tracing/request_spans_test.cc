#include "server/tracing/request_spans.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace castor::server {
namespace {

using std::chrono::milliseconds;

RequestTrace Ran() {
  RequestTrace trace;
  trace.own = {.trace = NewTraceId(), .span = NewSpanId(), .sampled = true};
  trace.ran = true;
  trace.stage = Stage::kAnswer;
  return trace;
}

// On a GPU the copy in ends long before the batch before has computed: this one computes when the
// device is free, right before its copy out.
TEST(RequestSpansTest, TheDevicesStagesLieWithinTheBatch) {
  RequestTrace trace = Ran();
  const TimePoint zero = std::chrono::steady_clock::now();
  trace.received = zero;
  trace.timing = {.decode_us = 1000,
                  .queue_us = 1000,
                  .copy_in_us = 500,
                  .compute_us = 3000,
                  .copy_out_us = 1000};
  trace.batch.begun = zero + milliseconds(2);
  trace.batch.ended = zero + milliseconds(12);
  trace.completed = zero + milliseconds(13);
  trace.ended = zero + milliseconds(14);
  ScopeSpans scope;
  const WallClock clock = WallClock::Now();
  AddRequest(trace, clock, &scope);
  EXPECT_EQ(scope.spans_size(), SpanCount(trace));
  std::string order;
  for (const auto& span : scope.spans()) {
    const auto at = [&](uint64_t time) {
      return std::to_string((static_cast<int64_t>(time) - clock.At(zero)) / 1000);
    };
    order += span.name() + " " + at(span.start_time_unix_nano()) + "-" +
             at(span.end_time_unix_nano()) + "\n";
  }
  EXPECT_EQ(order,
            " 0-14000\ndecode 0-1000\nqueue 1000-2000\nbatch 2000-12000\ncopy_in 2000-2500\n"
            "compute 8000-11000\ncopy_out 11000-12000\nencode 13000-14000\n");
}

TEST(RequestSpansTest, StagesThatClaimMoreThanTheirBatchAreCut) {
  RequestTrace trace = Ran();
  trace.received = trace.batch.begun = std::chrono::steady_clock::now();
  trace.batch.ended = trace.completed = trace.ended = trace.received + milliseconds(1);
  trace.timing = {.copy_in_us = 1e6, .compute_us = 1e6, .copy_out_us = 1e6};
  ScopeSpans scope;
  const WallClock clock = WallClock::Now();
  AddRequest(trace, clock, &scope);
  for (const auto& span : scope.spans()) {
    EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano()) << span.name();
    EXPECT_LE(span.end_time_unix_nano(), static_cast<uint64_t>(clock.At(trace.ended)))
        << span.name();
  }
}

}  // namespace
}  // namespace castor::server
