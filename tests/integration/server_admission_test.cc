// Tenants and predicted times as callers meet them: whole servers, over a scripted engine, over
// the real engine on a device whose time a test decides, and over the real engine on the CPU.

#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/assembly/internal.h"
#include "tests/integration/server_fixture.h"
#include "tests/unit/loop/fake_device.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// ---- tenants

class ServerTenantTest : public ServerTest {
 protected:
  void ExpectBad(const std::vector<std::string>& names, const std::string& problem) {
    SCOPED_TRACE(names.front());
    AttendCall call;
    for (const std::string& name : names) call.context.AddMetadata("castor-tenant", name);
    const grpc::Status status = call.Run(*attention_, AttendOf(1));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(problem));
    const Details details = DetailsOf(status);
    EXPECT_EQ(details.info.reason(), "INVALID_FIELD");
    ASSERT_EQ(details.bad_request.field_violations_size(), 1);
    EXPECT_EQ(details.bad_request.field_violations(0).field(), "castor-tenant");
  }
};

TEST_F(ServerTenantTest, ABadNameIsRefused) {
  StartServer();
  ExpectBad({"a b"}, "must be 1 to 64 letters, digits, '.', '_', '-'");
  ExpectBad({"one", "two"}, "is given twice");
  ExpectBad({"one", "one"}, "is given twice");
  EXPECT_EQ(engine_->admitted(), 0);
  EXPECT_TRUE(AwaitNoCalls());
}

// ---- predicted times

// A request of N tokens is predicted to take N seconds of a device that waits for the test.
class ServerPredictionTest : public ServerTest {
 protected:
  ~ServerPredictionTest() override { script_->Open(); }

  void SetUp() override {
    EngineParts parts;
    parts.open_device =
        [script = script_](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Device>> {
      return std::make_unique<FakeDevice>(script);
    };
    parts.predict = [](int64_t tokens) {
      return PredictedTime{.own_us = 1e6 * static_cast<double>(tokens)};
    };
    EngineOptions options;
    options.max_queued_time = seconds(30);
    options.max_request_time = seconds(200);
    auto engine = CreateEngineWithParts(options, std::move(parts));
    ASSERT_TRUE(engine.ok()) << engine.status();
    StartServer(TestOptionsWithMetrics(), *std::move(engine));
  }

  // A call of `tokens` seconds with its deadline after some more; none: the server's own.
  struct Asked {
    grpc::Status status;
    Details details;
    std::string pushback;
  };
  Asked Ask(int64_t tokens, seconds deadline = seconds(0)) {
    AttendCall call;
    if (deadline.count() > 0) {
      call.context.set_deadline(std::chrono::system_clock::now() + deadline);
    }
    Asked asked;
    asked.status = call.Run(*attention_, AttendOf(tokens));
    asked.details = DetailsOf(asked.status);
    const auto& trailers = call.context.GetServerTrailingMetadata();
    const auto found = trailers.find("grpc-retry-pushback-ms");
    if (found != trailers.end()) {
      asked.pushback.assign(found->second.data(), found->second.size());
    }
    return asked;
  }

  // While the device is busy with a request of 100 s. Requires that nothing ran before.
  template <typename Meanwhile>
  void WhileBusy(Meanwhile meanwhile) {
    script_->Close();
    grpc::Status status;
    std::thread caller([&] { status = Try(AttendOf(100)); });
    script_->WaitForBatches(1);
    meanwhile();
    script_->Open();
    caller.join();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  std::shared_ptr<FakeScript> script_ = std::make_shared<FakeScript>();
};

TEST_F(ServerPredictionTest, ADeadlineThatCannotBeMetIsRefusedWithTheFigures) {
  const Asked asked = Ask(100, seconds(60));
  EXPECT_EQ(asked.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(asked.details.info.reason(), "DEADLINE_EXCEEDED") << "the server's word, at once";
  EXPECT_THAT(asked.status.error_message(),
              StartsWith("the request would take about 100 s after 0.0 ms in the queue, and its "
                         "deadline is in "));
  EXPECT_FALSE(asked.details.retry.has_value()) << "waiting would not help";
  EXPECT_EQ(asked.pushback, "");
  EXPECT_TRUE(script_->batches().empty()) << "nothing was computed";
  EXPECT_EQ(Metric("castor_rejected_total{reason=\"DEADLINE_EXCEEDED\"}"), 1);
  EXPECT_EQ(Metric("castor_deadline_misses_total"), 0) << "it was not admitted";
}

TEST_F(ServerPredictionTest, WhatWouldBeInTimeLaterIsToldWhen) {
  WhileBusy([&] {
    const Asked asked = Ask(100, seconds(190));
    EXPECT_EQ(asked.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(asked.details.info.reason(), "DEADLINE_EXCEEDED");
    EXPECT_THAT(asked.status.error_message(), StartsWith("the request would take about 100 s "));
    EXPECT_THAT(asked.status.error_message(),
                HasSubstr(" s in the queue, and its deadline is in "));
    ASSERT_TRUE(asked.details.retry.has_value());
    EXPECT_EQ(asked.details.retry->retry_delay().seconds(), 10) << "100 s, bounded";
    EXPECT_EQ(asked.pushback, "10000");
  });
}

TEST_F(ServerPredictionTest, ThePageTellsTheTenants) {
  const std::string series = "castor_tenant_compute_seconds_total";
  EXPECT_EQ(Metric(series + "{tenant=\"\"}"), 0);
  EXPECT_EQ(Metric(series + "{tenant=\"beaver\"}"), -1) << "not there yet";
  AttendCall call;
  call.context.AddMetadata("castor-tenant", "beaver");
  v1::AttendRequest request = AttendOf(1);
  request.set_priority(v1::HIGH);
  ASSERT_TRUE(call.Run(*attention_, request).ok());
  EXPECT_GT(Metric(series + "{tenant=\"beaver\"}"), 0);
  EXPECT_EQ(Metric(series + "{tenant=\"\"}"), 0);
  EXPECT_EQ(Metric("castor_wait_duration_seconds_count{priority=\"high\"}"), 1);
  EXPECT_EQ(Metric("castor_wait_duration_seconds_count{priority=\"low\"}"), 0);
  EXPECT_EQ(Metric("castor_prediction_ratio_count{kernel=\"vanilla\",operation=\"attend\"}"), 1);
  EXPECT_EQ(Metric("castor_queued_seconds_limit"), 30);
}

// ---- the real engine

class ServerBoundsTest : public ServerTest {};

// A message of a few megabytes that asks for a hundred billion scores.
TEST_F(ServerBoundsTest, AQuadraticRequestIsRefusedBeforeItRuns) {
  EngineOptions options;
  options.max_request_time = milliseconds(500);
  StartReal({}, TestOptions(), options);
  const grpc::Status status = Try(AttendOf(400'000));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailsOf(status).info.reason(), "TOO_LARGE");
  EXPECT_THAT(status.error_message(), StartsWith("the request would occupy the device for about "));
  EXPECT_THAT(status.error_message(), HasSubstr(" s; this engine admits 500 ms"));
  EXPECT_EQ(server_->engine().stats().load.inflight_requests, 0);
  EXPECT_TRUE(Try(AttendOf(100)).ok());
}

}  // namespace
}  // namespace castor::testing
