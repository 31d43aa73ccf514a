#include "client/load/drive/recorder.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMs = 1'000'000;

grpc::Status Refusal(grpc::StatusCode code, const std::string& reason, const std::string& text) {
  google::rpc::Status status;
  status.set_code(static_cast<int>(code));
  status.set_message(text);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("castor");
  status.add_details()->PackFrom(info);
  return {code, text, status.SerializeAsString()};
}

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() {
    workload_.classes.resize(1);
    workload_.classes[0].name = "only";
    workload_.classes[0].objective.latencies = {{0.5, milliseconds(10)}, {0.99, milliseconds(50)}};
    payload_.tokens = 7;
    payload_.sequences = 2;
  }

  Ended Answer(int64_t at_ms, int64_t sent_ms, int64_t done_ms) {
    Ended ended;
    ended.at_ns = at_ms * kMs;
    ended.sent_ns = sent_ms * kMs;
    ended.done_ns = done_ms * kMs;
    ended.payload = &payload_;
    ended.status = &status_;
    ended.facts.readable = true;
    return ended;
  }
  Ended Error(const grpc::Status& status) {
    Ended ended = Answer(0, 0, 5);
    ended.status = &status;
    return ended;
  }

  Cell Moved() {
    RunData run;
    run.cells.assign(1, std::vector<Cell>(1));
    run.cells[0][0].above_goal.resize(2);
    recorder().MoveTo(run);
    seconds_ = run.seconds;
    return run.cells[0][0];
  }

  Recorder& recorder() {
    if (!recorder_) recorder_.emplace(workload_, 1, nullptr);
    return *recorder_;
  }

  Workload workload_;
  Payload payload_;
  grpc::Status status_;
  std::optional<Recorder> recorder_;
  std::vector<std::vector<Second>> seconds_;
};

TEST_F(RecorderTest, LatencyCountsFromTheIntendedTimeAndFromSending) {
  recorder().Record(Answer(100, 130, 150));
  const Cell cell = Moved();
  EXPECT_EQ(cell.intended.max(), 50 * kMs);
  EXPECT_EQ(cell.service.max(), 20 * kMs);
  EXPECT_EQ(cell.lag.max(), 30 * kMs);
  EXPECT_EQ(cell.tokens, 7);
  EXPECT_EQ(cell.sequences, 2);
}

TEST_F(RecorderTest, GoalsAreJudgedFromTheIntendedTime) {
  recorder().Record(Answer(0, 0, 10));   // within both
  recorder().Record(Answer(0, 0, 11));   // above the first
  recorder().Record(Answer(0, 49, 60));  // above both, though the answer itself took 11 ms
  const Cell cell = Moved();
  EXPECT_EQ(cell.good, 1);
  EXPECT_EQ(cell.above_goal, (std::vector<int64_t>{2, 1}));
}

TEST_F(RecorderTest, OutcomesFollowFromStatusAndReason) {
  recorder().Record(Error(Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", "12 ms")));
  recorder().Record(Error(Refusal(grpc::StatusCode::UNAVAILABLE, "SHUTTING_DOWN", "drains")));
  recorder().Record(Error({grpc::StatusCode::UNAVAILABLE, "connection refused"}));
  recorder().Record(Error({grpc::StatusCode::DEADLINE_EXCEEDED, "late"}));
  recorder().Record(Error({grpc::StatusCode::CANCELLED, "by somebody else"}));
  Ended cancelled = Error({grpc::StatusCode::CANCELLED, ""});
  const grpc::Status status(grpc::StatusCode::CANCELLED, "");
  cancelled.status = &status;
  cancelled.cancelled = true;
  recorder().Record(cancelled);
  recorder().RecordDropped(0, 0);
  const Cell cell = Moved();
  EXPECT_EQ(cell.of(Outcome::kRefused), 2);
  EXPECT_EQ(cell.of(Outcome::kFailed), 2);
  EXPECT_EQ(cell.of(Outcome::kExpired), 1);
  EXPECT_EQ(cell.of(Outcome::kCancelled), 1);
  EXPECT_EQ(cell.of(Outcome::kDropped), 1);
  EXPECT_EQ(cell.refusal.count(), 2);
  // Whatever got no answer is above every limit, what was cancelled as planned aside.
  EXPECT_EQ(cell.above_goal, (std::vector<int64_t>{6, 6}));
}

TEST_F(RecorderTest, ACancellationAfterTheDeadlineIsItsExpiry) {
  const grpc::Status cancelled(grpc::StatusCode::CANCELLED, "Cancelled on the server side");
  workload_.classes[0].deadline = milliseconds(5);  // as long as Error() takes
  recorder().Record(Error(cancelled));
  Ended early = Error(cancelled);
  early.done_ns -= 2 * kMs;  // gRPC counts deadlines in milliseconds
  recorder().Record(early);
  const Cell cell = Moved();
  EXPECT_EQ(cell.of(Outcome::kExpired), 1);
  EXPECT_EQ(cell.of(Outcome::kFailed), 1);
}

TEST_F(RecorderTest, ErrorsAreCountedByKindWithoutWhatVaries) {
  for (int i = 0; i < 50; ++i) {
    const grpc::Status status = Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL",
                                        "come back in " + std::to_string(i) + ".5 ms");
    recorder().Record(Error(status));
  }
  const Cell cell = Moved();
  ASSERT_EQ(cell.messages.size(), 1);
  EXPECT_EQ(cell.messages.begin()->first, "RESOURCE_EXHAUSTED QUEUE_FULL: come back in # ms");
  EXPECT_EQ(cell.messages.begin()->second, 50);
}

TEST_F(RecorderTest, ManyKindsOfErrorsTakeNoMoreMemory) {
  for (char first = 'a'; first <= 'z'; ++first) {
    for (char second = 'a'; second <= 'z'; ++second) {
      const grpc::Status status(grpc::StatusCode::INTERNAL, std::string{first, second});
      recorder().Record(Error(status));
    }
  }
  const Cell cell = Moved();
  EXPECT_LE(cell.messages.size(), 33);
  int64_t sum = 0;
  for (const auto& [kind, count] : cell.messages) sum += count;
  EXPECT_EQ(sum, 26 * 26);
}

TEST_F(RecorderTest, SecondsAreThoseOfTheIntendedTimes) {
  recorder().Record(Answer(999, 999, 5000));
  recorder().Record(Answer(1000, 1000, 1001));
  recorder().Record(Answer(2500, 2500, 2501));
  Moved();
  ASSERT_EQ(seconds_.size(), 3);
  for (const auto& second : seconds_) EXPECT_EQ(second[0].intended.count(), 1);
}

TEST_F(RecorderTest, WhatWarmsUpCountsForTheServerAlone) {
  recorder().Record(Answer(-5, -5, 0));
  const Cell cell = Moved();
  EXPECT_EQ(cell.planned(), 0);
  EXPECT_EQ(recorder().calls()[0][static_cast<int>(Outcome::kOk)], 1);
}

TEST_F(RecorderTest, StagesAddUpToWhatTheServerSays) {
  Ended ended = Answer(0, 0, 10);
  ended.facts = {.readable = true,
                 .timed = true,
                 .queue_us = 3000,
                 .compute_us = 2000,
                 .total_us = 6000,
                 .predicted_us = 2400,
                 .measured_us = 2000,
                 .kernel = "vanilla"};
  recorder().Record(ended);
  ended.facts.predicted_us = 2600;
  recorder().Record(ended);
  const Cell cell = Moved();
  EXPECT_EQ(cell.stages.queue.max(), 3 * kMs);
  EXPECT_EQ(cell.stages.compute.max(), 2 * kMs);
  EXPECT_EQ(cell.stages.network.max(), 4 * kMs);
  EXPECT_EQ(cell.stages.predicted, 2);
  EXPECT_EQ(cell.stages.predicted_within, 1);
  EXPECT_EQ(cell.kernels.at("vanilla"), 2);
}

}  // namespace
}  // namespace castor::load
