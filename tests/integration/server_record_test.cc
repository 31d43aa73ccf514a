// What castor-server --record writes, read with castor-load's own reader.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "client/load/schedule/replay.h"
#include "client/load/schedule/trace.h"
#include "engine/base/error.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

class ServerRecordTest : public ServerTest {
 protected:
  ServerRecordTest() {
    std::string pattern = ::testing::TempDir() + "castor-record-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~ServerRecordTest() override {
    StopServer();
    std::filesystem::remove_all(folder_);
  }

  std::string path() const { return folder_ + "/requests.jsonl"; }

  server::ServerOptions Recording() {
    server::ServerOptions options = TestOptionsWithMetrics();
    options.record = path();
    return options;
  }

  std::vector<load::TraceRequest> Recorded() const {
    std::vector<load::TraceRequest> requests;
    load::ReadTrace(path(), [&](const auto& request) { requests.push_back(request); });
    return requests;
  }

  grpc::Status Attend(const v1::AttendRequest& request) {
    AttendCall call;
    call.context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return call.Run(*attention_, request);
  }

  grpc::Status Encode(const v1::EncodeRequest& request) {
    grpc::ClientContext context;
    v1::EncodeResponse response;
    return encoder_->Encode(&context, request, &response);
  }

  std::string folder_;
};

TEST_F(ServerRecordTest, WhatIsAskedIsReadBackAsItWas) {
  StartServer(Recording());
  v1::AttendRequest attend = AttendOf(6);
  attend.add_query_lengths(4);
  attend.add_query_lengths(2);
  attend.set_priority(v1::HIGH);
  attend.mutable_clustered()->set_clusters(7);
  ASSERT_TRUE(Attend(attend).ok());
  v1::EncodeRequest encode = EncodeOf({"my private words", "and more"});
  encode.set_output(v1::TOKEN_EMBEDDINGS);
  ASSERT_TRUE(Encode(encode).ok());
  v1::EncodeRequest tokens;
  for (const int64_t id : {5, 6, 7}) tokens.mutable_tokens()->add_ids(id);
  ASSERT_TRUE(Encode(tokens).ok());
  engine_->RefuseWith(MakeError(Reason::kQueueFull, "full"));
  EXPECT_EQ(Encode(EncodeOf({"12345"})).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  engine_->RefuseWith(absl::OkStatus());
  // Those are no load that anyone would send again.
  EXPECT_EQ(Attend(v1::AttendRequest()).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CallRaw("/castor.v1.AttentionService/Attend", "\xff\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Metric("castor_record_dropped_total"), 0);
  StopServer();

  const std::vector<load::TraceRequest> recorded = Recorded();
  ASSERT_EQ(recorded.size(), 4U);
  for (size_t i = 1; i < recorded.size(); ++i) {
    EXPECT_LE(recorded[i - 1].at_us, recorded[i].at_us);
  }
  // The message itself says the same of it, but for the defaults, which the server has resolved.
  load::TraceRequest expected = load::Describe(attend);
  expected.at_us = recorded[0].at_us;
  expected.deadline_ms = recorded[0].deadline_ms;
  expected.kernel.iterations = 10;
  expected.kernel.bits = 63;
  EXPECT_EQ(load::ToTraceLine(recorded[0]), load::ToTraceLine(expected));
  EXPECT_GT(recorded[0].deadline_ms, 20'000);
  EXPECT_LE(recorded[0].deadline_ms, 30'100);  // gRPC rounds up to a tenth of a second

  EXPECT_TRUE(recorded[1].encode);
  EXPECT_EQ(recorded[1].lengths, (std::vector<int64_t>{3, 3}));  // FakeEngine's
  EXPECT_EQ(recorded[1].output, v1::TOKEN_EMBEDDINGS);
  EXPECT_EQ(recorded[2].lengths, (std::vector<int64_t>{3}));
  EXPECT_TRUE(recorded[3].lengths.empty());
  EXPECT_EQ(recorded[3].text_bytes, (std::vector<int64_t>{5}));

  // And it can be sent again.
  load::Workload workload;
  workload.load.emplace<load::Replay>().file = path();
  workload.duration = workload.warm_up = std::chrono::nanoseconds(0);
  EXPECT_EQ(load::MakeSchedule(load::PrepareReplay(workload), 0).size(), 4U);
}

TEST_F(ServerRecordTest, AServerGoesOnWhenTheRecordingIsFull) {
  server::ServerOptions options = Recording();
  options.record_max_bytes = 1024;
  StartServer(options);
  // Lines of some 120 bytes: more than there is room for.
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(Attend(AttendOf(3)).ok());
  StopServer();
  EXPECT_LE(std::filesystem::file_size(path()), 1024U);
  EXPECT_GE(Recorded().size(), 5U);
}

TEST_F(ServerRecordTest, AServerDoesNotStartOverARecording) {
  StartServer(Recording());
  ASSERT_TRUE(Attend(AttendOf(3)).ok());
  StopServer();
  const auto again = server::Server::Start(Recording(), std::make_unique<FakeEngine>());
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find(path()), std::string::npos);
  EXPECT_EQ(Recorded().size(), 1U);
}

}  // namespace
}  // namespace castor::testing
