#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/tracing/tracer.h"

namespace castor::server {
namespace {

using Kind = ExportResult::Kind;
using std::chrono::milliseconds;

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
