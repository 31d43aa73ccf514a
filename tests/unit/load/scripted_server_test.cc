#include "tests/bench/load_tester/scripted_server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "castor/v1/attention.grpc.pb.h"
#include "castor/v1/encoder.grpc.pb.h"
#include "castor/v1/server.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace castor::bench {
namespace {

class ScriptedServerTest : public ::testing::Test {
 protected:
  void Start(ScriptedServerOptions options) {
    server_ = std::make_unique<ScriptedServer>(options);
    thread_ = std::thread([this] { server_->Run(); });
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                   grpc::InsecureChannelCredentials());
    attention_ = v1::AttentionService::NewStub(channel_);
  }
  void TearDown() override { (void)Stop(); }

  ScriptedServerCounts Stop() {
    if (!thread_.joinable()) return {};
    server_->Stop();
    thread_.join();
    return server_->Counts();
  }

  // A request of one token, whose value has `elements` elements.
  static v1::AttendRequest OneToken(int64_t elements) {
    v1::AttendRequest request;
    for (v1::Tensor* tensor :
         {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
      tensor->set_dtype(v1::FLOAT32);
      for (const int64_t dimension : {int64_t{1}, int64_t{1}, elements})
        tensor->add_shape(dimension);
      tensor->set_raw(std::string(static_cast<size_t>(4 * elements), 'v'));
    }
    request.set_request_id("mine");
    return request;
  }

  grpc::Status Attend(v1::AttendResponse* response, int64_t elements = 1) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return attention_->Attend(&context, OneToken(elements), response);
  }

  std::unique_ptr<ScriptedServer> server_;
  std::thread thread_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AttentionService::Stub> attention_;
};

TEST_F(ScriptedServerTest, EveryMethodHasAValidAnswer) {
  Start({});
  v1::AttendResponse attend;
  ASSERT_TRUE(Attend(&attend).ok());
  EXPECT_EQ(attend.output().raw().size(), 4U);
  EXPECT_EQ(attend.kernel().name(), v1::VANILLA);

  grpc::ClientContext encode_context;
  v1::EncodeRequest texts;
  texts.mutable_texts()->add_texts("a text");
  v1::EncodeResponse encode;
  ASSERT_TRUE(v1::EncoderService::NewStub(channel_)->Encode(&encode_context, texts, &encode).ok());
  EXPECT_EQ(encode.token_counts_size(), 1);

  grpc::ClientContext info_context;
  v1::ServerInfo info;
  ASSERT_TRUE(v1::ServerService::NewStub(channel_)->GetServerInfo(&info_context, {}, &info).ok());
  EXPECT_EQ(info.version(), "scripted");

  grpc::ClientContext stream_context;
  const auto stream = attention_->AttendStream(&stream_context);
  stream->WritesDone();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);

  const ScriptedServerCounts counts = Stop();
  EXPECT_EQ(counts.came, 2) << "calls of the script's methods";
  EXPECT_EQ(counts.good, 2);
}

TEST_F(ScriptedServerTest, AttentionOverOneTokenIsItsValue) {
  Start({.one_token = true});
  constexpr int64_t kElements = 300'000;  // many frames, and more than a window of 64 KiB
  v1::AttendResponse response;
  ASSERT_TRUE(Attend(&response, kElements).ok());
  EXPECT_EQ(response.request_id(), "mine");
  EXPECT_EQ(response.output().SerializeAsString(), OneToken(kElements).value().SerializeAsString());
}

TEST_F(ScriptedServerTest, AWrongAnswerDiffersByABit) {
  Start({.script = {.wrong_share = 1}, .one_token = true});
  v1::AttendResponse response;
  ASSERT_TRUE(Attend(&response, 2).ok());
  EXPECT_EQ(response.output().raw(), "vvvvvvvw");
  EXPECT_EQ(Stop().wrong, 1);
}

TEST_F(ScriptedServerTest, ARefusalSaysWhenToReturn) {
  Start({.script = {.refuse_share = 1}});
  v1::AttendResponse response;
  const grpc::Status status = Attend(&response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::RetryInfo retry;
  ASSERT_EQ(details.details_size(), 1);
  ASSERT_TRUE(details.details(0).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().nanos(), 50'000'000);
  EXPECT_EQ(Stop().refused, 1);
}

// Only the lower bounds are certain: a busy machine may make everything later.
TEST_F(ScriptedServerTest, TheQueueAnswersOneAfterAnother) {
  constexpr int kCalls = 5;
  constexpr int64_t kServiceNs = 10'000'000;
  Start({.script = {.service = ScriptOptions::Service::kQueue, .service_ns = kServiceNs}});
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::future<std::chrono::nanoseconds>> answers;
  for (int i = 0; i < kCalls; ++i) {
    answers.push_back(std::async(std::launch::async, [this, begin] {
      v1::AttendResponse response;
      EXPECT_TRUE(Attend(&response).ok());
      return std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin);
    }));
  }
  std::vector<std::chrono::nanoseconds> after;
  for (auto& answer : answers) after.push_back(answer.get());
  std::sort(after.begin(), after.end());
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_GE(after[static_cast<size_t>(i)].count(), (i + 1) * kServiceNs) << "answer " << i;
  }
  EXPECT_EQ(Stop().good, kCalls);
}

TEST_F(ScriptedServerTest, WhatIsCancelledIsForgotten) {
  Start({.script = {.silent_share = 1}});
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    std::promise<grpc::Status> ended;
    const v1::AttendRequest request = OneToken(1);
    v1::AttendResponse response;
    attention_->async()->Attend(&context, &request, &response,
                                [&](grpc::Status status) { ended.set_value(std::move(status)); });
    context.TryCancel();
    EXPECT_EQ(ended.get_future().get().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(ScriptedServerTest, DiscardAnswersManyClients) {
  Start({.discard = true});
  for (int i = 0; i < 3; ++i) {
    grpc::ChannelArguments own_connection;
    own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    attention_ = v1::AttentionService::NewStub(
        grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                  grpc::InsecureChannelCredentials(), own_connection));
    v1::AttendResponse response;
    EXPECT_TRUE(Attend(&response, 1000).ok());
  }
  EXPECT_EQ(Stop().good, 3);
}

}  // namespace
}  // namespace castor::bench
