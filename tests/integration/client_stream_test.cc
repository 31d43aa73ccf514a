// The client's iterator over AttendStream, with a whole server over real sockets.

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "engine/base/error.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClientStreamTest : public ServerTest {
 protected:
  // Sends `count` requests, the i-th of 1 + i % 7 tokens; what each answer says, "OK" or the
  // reason.
  std::vector<std::string> Outcomes(
      client::Client& client, int count, const std::function<void(int)>& after = [](int) {}) {
    constexpr size_t kWindow = 4;
    int made = 0;
    std::vector<std::string> outcomes;
    const auto stream = client.AttendStream(
        [&](v1::AttendRequest* request) {
          if (made == count) return false;
          // And the answer that Next is about to return.
          EXPECT_LT(static_cast<size_t>(made), outcomes.size() + kWindow + 1);
          *request = AttendOf(1 + made++ % 7);
          // Of sequences of one token the answer is the value, by every engine.
          for (int64_t t = 0; t < request->query().shape(0); ++t) request->add_query_lengths(1);
          return true;
        },
        {.window = kWindow, .deadline = seconds(20)});
    while (const auto answer = stream->Next()) {
      const int i = static_cast<int>(outcomes.size());
      if (answer->ok()) {
        EXPECT_EQ((*answer)->output().raw(), AttendOf(1 + i % 7).value().raw());
      }
      outcomes.push_back(answer->ok() ? "OK" : answer->error().reason);
      after(i);
    }
    return outcomes;
  }
};

TEST_F(ClientStreamTest, AnswersComeInTheOrderOfTheirRequestsWithinTheWindow) {
  StartServer();
  client::Client client({.target = address()});
  EXPECT_EQ(Outcomes(client, 100), std::vector<std::string>(100, "OK"));
  EXPECT_EQ(Outcomes(client, 0), std::vector<std::string>());
  EXPECT_TRUE(AwaitNoCalls());
}

TEST_F(ClientStreamTest, AnErrorIsTheAnswerOfItsRequestAlone) {
  StartServer();
  client::Client client({.target = address()});
  const auto outcomes = Outcomes(client, 30, [&](int i) {
    engine_->FailWith(i == 10 ? MakeError(Reason::kOutOfMemory, "no memory") : absl::OkStatus());
  });
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), "OK") +
                std::count(outcomes.begin(), outcomes.end(), "OUT_OF_MEMORY"),
            30);
  EXPECT_EQ(outcomes.back(), "OK");
}

// Its own requests fill the engine's budget of tokens.
TEST_F(ClientStreamTest, WhatIsRefusedForLoadGoesAgainWhenThereIsRoom) {
  EngineOptions options;
  options.device = "cpu";
  options.cpu_threads = 1;
  options.cost_model_budget = milliseconds(0);
  options.max_queued_tokens = 8;
  auto engine = CreateEngine(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  StartServer(TestOptions(), *std::move(engine));
  client::Client client({.target = address()});
  EXPECT_EQ(Outcomes(client, 200), std::vector<std::string>(200, "OK"));
}

TEST_F(ClientStreamTest, ADrainLosesNoRequest) {
  StartServer();
  auto other = server::Server::Start(TestOptions(), std::make_unique<FakeEngine>(),
                                     std::make_unique<server::OpenToAll>());
  ASSERT_TRUE(other.ok()) << other.status();
  client::Client client(
      {.target = "ipv4:" + address() + ",127.0.0.1:" + std::to_string((*other)->port())});
  std::thread drainer;
  const auto outcomes = Outcomes(client, 2000, [&](int i) {
    if (i != 10) return;
    server::Server& serving = server_->calls_in_flight() > 0 ? *server_ : **other;
    drainer = std::thread([&serving] { EXPECT_TRUE(serving.Drain()); });
  });
  drainer.join();
  EXPECT_EQ(outcomes, std::vector<std::string>(2000, "OK"));
}

TEST_F(ClientStreamTest, WhoeverDoesNotAnswerInTimeIsLeft) {
  StartServer();
  engine_->HoldRunning();
  client::Client client({.target = address()});
  bool made = false;
  const auto stream = client.AttendStream(
      [&](v1::AttendRequest* request) {
        *request = AttendOf(1);
        return !std::exchange(made, true);
      },
      {.deadline = milliseconds(100)});
  const auto answer = stream->Next();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->error().code, grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_FALSE(stream->Next().has_value());
  engine_->Release();
}

}  // namespace
}  // namespace castor::testing
