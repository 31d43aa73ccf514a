#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/tracing/request_spans.h"
#include "server/tracing/trace_context.h"
#include "server/tracing/tracer.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using Kind = ExportResult::Kind;

constexpr char kWhole[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceparentTest, OnlyTheLastFlagSaysSampled) {
  std::string header = kWhole;
  for (const auto& [flags, sampled] :
       {std::pair{"00", false}, {"02", false}, {"fe", false}, {"03", true}, {"ff", true}}) {
    header.replace(53, 2, flags);
    const auto context = ParseTraceparent(header);
    ASSERT_TRUE(context.has_value()) << flags;
    EXPECT_EQ(context->sampled, sampled) << flags;
  }
}

TEST(TraceparentTest, LaterVersionsMayBeLonger) {
  std::string header = kWhole;
  header.replace(0, 2, "cc");
  EXPECT_TRUE(ParseTraceparent(header).has_value());
  EXPECT_TRUE(ParseTraceparent(header + "-what-the-future-will-be-like").has_value());
  EXPECT_TRUE(ParseTraceparent(header + "-").has_value());
  EXPECT_FALSE(ParseTraceparent(header + ".what").has_value());
  header.replace(0, 2, "ff");
  EXPECT_FALSE(ParseTraceparent(header).has_value()) << "there is no version ff";
}

TEST(TraceparentTest, AnythingElseIsNone) {
  const std::string whole = kWhole;
  EXPECT_FALSE(ParseTraceparent("").has_value());
  EXPECT_FALSE(ParseTraceparent(whole + "-").has_value()) << "version 0 has no more";
  EXPECT_FALSE(ParseTraceparent(whole + "0").has_value());
  EXPECT_FALSE(ParseTraceparent(" " + whole).has_value());
  EXPECT_FALSE(ParseTraceparent(whole.substr(0, 54)).has_value());
  EXPECT_FALSE(ParseTraceparent("00-" + std::string(32, '0') + "-00f067aa0ba902b7-01").has_value());
  EXPECT_FALSE(
      ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01").has_value());
  // No character can be another one: upper case, a separator, a digit, a zero byte.
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char other : {'A', 'g', '_', ' ', '\0', '\xff'}) {
      std::string wrong = whole;
      wrong[i] = other;
      EXPECT_FALSE(ParseTraceparent(wrong).has_value()) << i << " " << int{other};
    }
  }
}

TEST(TraceStateTest, GoesOnIfItIsSmallAndPrintable) {
  EXPECT_EQ(UsableTraceState("a=1,b=2"), "a=1,b=2");
  const std::string longest(kMaxTraceStateBytes, 'x');
  EXPECT_EQ(UsableTraceState(longest), longest);
  EXPECT_EQ(UsableTraceState(longest + "x"), "");
  EXPECT_EQ(UsableTraceState("a=\xc3\xa9"), "");
  EXPECT_EQ(UsableTraceState("a=\n"), "");
  std::string members = "a=1";
  for (int i = 1; i < 32; ++i) members += ",a=1";
  EXPECT_EQ(UsableTraceState(members), members);
  EXPECT_EQ(UsableTraceState(members + ",a=1"), "");
}

TEST(IdsTest, AreDifferentOnAllThreads) {
  std::set<std::string> ids[2];
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) ids[1].insert(ToHex(NewTraceId()));
  });
  for (int i = 0; i < 1000; ++i) ids[0].insert(ToHex(NewTraceId()));
  other.join();
  ids[0].merge(ids[1]);
  EXPECT_EQ(ids[0].size(), 2000U);
  EXPECT_NE(NewSpanId(), SpanId{});
}

TEST(SamplerTest, TheCallersDecisionHolds) {
  const TraceContext yes{.trace = NewTraceId(), .span = NewSpanId(), .sampled = true};
  TraceContext no = yes;
  no.sampled = false;
  const Sampler few(1e-9);
  const Sampler all(1);
  EXPECT_TRUE(few.Takes(yes, yes.trace));
  EXPECT_FALSE(all.Takes(no, no.trace));
  EXPECT_FALSE(Sampler(0).Takes(yes, yes.trace)) << "off is off";
}

TEST(SamplerTest, TakesItsShareOfTheOthers) {
  for (const double share : {0.0, 0.01, 0.5, 1.0}) {
    const Sampler sampler(share);
    int taken = 0;
    constexpr int kTraces = 100'000;
    for (int i = 0; i < kTraces; ++i) taken += sampler.Takes(std::nullopt, NewTraceId()) ? 1 : 0;
    // Five standard deviations.
    EXPECT_NEAR(taken, share * kTraces, 5 * std::sqrt(share * (1 - share) * kTraces)) << share;
  }
}

TEST(SamplerTest, TheTraceIdAloneDecides) {
  TraceId id{};
  const Sampler half(0.5);
  id[0] = 0xff;
  id[8] = 0xff;  // the last 56 bits begin after it
  EXPECT_FALSE(half.Takes(std::nullopt, id));
  id[9] = 0x7f;
  EXPECT_FALSE(half.Takes(std::nullopt, id));
  id[9] = 0x80;
  EXPECT_TRUE(half.Takes(std::nullopt, id));
  EXPECT_TRUE(Sampler(0.6).Takes(std::nullopt, id)) << "what a smaller share takes, a larger does";
}

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

grpc::Status WithRetry(grpc::StatusCode code, int64_t seconds, int32_t nanos) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(seconds);
  retry.mutable_retry_delay()->set_nanos(nanos);
  google::rpc::Status details;
  details.add_details()->PackFrom(retry);
  return {code, "later", details.SerializeAsString()};
}

TEST(ExportResultTest, SomeCodesAreTriedAgain) {
  const std::set<int> again = {grpc::StatusCode::CANCELLED,   grpc::StatusCode::DEADLINE_EXCEEDED,
                               grpc::StatusCode::ABORTED,     grpc::StatusCode::OUT_OF_RANGE,
                               grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::DATA_LOSS};
  for (int code = 1; code <= 16; ++code) {
    const auto result = ReadExportResult({static_cast<grpc::StatusCode>(code), "why"}, {});
    EXPECT_EQ(result.kind, again.contains(code) ? Kind::kTryAgain : Kind::kRefused) << code;
    EXPECT_EQ(result.message, "why");
    EXPECT_FALSE(result.delay.has_value());
  }
}

TEST(ExportResultTest, WithoutRoomOnlyIfItSaysWhen) {
  const auto result =
      ReadExportResult(WithRetry(grpc::StatusCode::RESOURCE_EXHAUSTED, 2, 500'000'000), {});
  EXPECT_EQ(result.kind, Kind::kTryAgain);
  EXPECT_EQ(result.delay, milliseconds(2500));
}

TEST(ExportResultTest, DelaysAreBounded) {
  EXPECT_EQ(ReadExportResult(WithRetry(grpc::StatusCode::UNAVAILABLE, INT64_MAX, 0), {}).delay,
            milliseconds(3'600'000));
  EXPECT_EQ(ReadExportResult(WithRetry(grpc::StatusCode::UNAVAILABLE, -5, -5), {}).delay,
            milliseconds(0));
  EXPECT_FALSE(
      ReadExportResult({grpc::StatusCode::UNAVAILABLE, "", "\xff\xff\xff"}, {}).delay.has_value());
}

TEST(ExportResultTest, WhatIsTakenMayHaveRejects) {
  otlp::ExportTraceServiceResponse response;
  EXPECT_EQ(ReadExportResult(grpc::Status::OK, response).rejected, 0);
  response.mutable_partial_success()->set_rejected_spans(4);
  response.mutable_partial_success()->set_error_message("too old\n");
  const auto result = ReadExportResult(grpc::Status::OK, response);
  EXPECT_EQ(result.kind, Kind::kTaken);
  EXPECT_EQ(result.rejected, 4);
  EXPECT_EQ(result.message, "too old?");
  response.mutable_partial_success()->set_rejected_spans(-1);
  EXPECT_EQ(ReadExportResult(grpc::Status::OK, response).rejected, 0);
}

TEST(AttributesTest, AddAndReplace) {
  Attributes attributes = {{"service.name", "castor"}};
  EXPECT_TRUE(AddAttributes("a=1, b = two%20words ,service.name=other,empty=", &attributes));
  const Attributes all = {{"a", "1"}, {"b", "two words"}, {"empty", ""}, {"service.name", "other"}};
  EXPECT_EQ(attributes, all);
  EXPECT_TRUE(AddAttributes("", &attributes));
  EXPECT_EQ(attributes, all);
}

TEST(AttributesTest, WhatIsWrongChangesNothing) {
  for (const std::string text :
       {"a", "a=1,b", "=1", "a=%", "a=%4", "a=%zz", "a=%ff", "a=\xc3\xa9", "a=%00", "a=1,b=2\n2"}) {
    Attributes attributes = {{"service.name", "castor"}};
    EXPECT_FALSE(AddAttributes(text, &attributes)) << text;
    EXPECT_EQ(attributes.size(), 1U) << text;
  }
  Attributes attributes;
  EXPECT_FALSE(AddAttributes("a=" + std::string(8192, 'x'), &attributes));
}

}  // namespace
}  // namespace castor::server
