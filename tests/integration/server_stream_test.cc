// AttendStream and EncodeStream through a whole server over real sockets: answers, errors of single
// messages, deadlines, flow control, and how streams end.

#include <gmock/gmock.h>
#include <grpcpp/support/error_details.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

// A stream takes a sixteenth of the engine's budgets.
constexpr int64_t kShare = 16;

class Attending {
 public:
  explicit Attending(v1::AttentionService::Stub& stub,
                     std::optional<milliseconds> deadline = std::nullopt) {
    if (deadline) context_.set_deadline(system_clock::now() + *deadline);
    stream_ = stub.AttendStream(&context_);
  }

  bool Write(const v1::AttendRequest& request) { return stream_->Write(request); }
  void WritesDone() { stream_->WritesDone(); }
  std::optional<v1::AttendResponse> Read() {
    v1::AttendResponse response;
    if (!stream_->Read(&response)) return std::nullopt;
    return response;
  }
  // "OK 7", or "INVALID_ARGUMENT INVALID_FIELD query 7": the outcome and the id of the next answer.
  std::string Next() {
    const auto response = Read();
    if (!response) return "the end";
    return Outcome(StatusOf(*response)) + " " + response->request_id();
  }
  void Cancel() { context_.TryCancel(); }
  // When no more answers come.
  grpc::Status Finish() {
    while (Read()) {
    }
    return stream_->Finish();
  }

  static grpc::Status StatusOf(const v1::AttendResponse& response) {
    grpc::Status status;
    if (response.has_error()) grpc::SetErrorDetails(response.error(), &status);
    return status;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> stream_;
};

// A request whose bytes are no AttendRequest behind its id.
v1::AttendRequest Malformed(const std::string& request_id) {
  v1::AttendRequest request;
  request.set_request_id(request_id);
  constexpr int kQuery = v1::AttendRequest::kQueryFieldNumber;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(kQuery, "\xff");
  return request;
}

v1::AttendRequest WithTimeout(milliseconds timeout) {
  v1::AttendRequest request = AttendOf(1, "timed");
  request.set_timeout_ms(static_cast<int32_t>(timeout.count()));
  return request;
}

std::string Counted(const std::string& method, const std::string& code,
                    const std::string& kernel = "none") {
  return "castor_requests_total{code=\"" + code + "\",kernel=\"" + kernel + "\",method=\"" +
         method + "\"}";
}

class StreamTest : public ServerTest {
 protected:
  // Over an engine with these budgets.
  void StartWithBudgets(int64_t requests, int64_t bytes,
                        server::ServerOptions options = TestOptionsWithMetrics()) {
    auto engine = std::make_unique<FakeEngine>();
    engine->SetBudgets(requests, bytes);
    FakeEngine* const fake = engine.get();
    StartServer(std::move(options), std::move(engine));
    engine_ = fake;
  }

  // Sends a message of each number of tokens. The server reads `at_once` of them while none is
  // answered; in the end all are.
  void ExpectRead(int64_t at_once, const std::vector<int64_t>& tokens) {
    engine_->Hold();
    Attending stream(*attention_);
    std::thread writer([&] {
      for (const int64_t each : tokens) EXPECT_TRUE(stream.Write(AttendOf(each)));
      stream.WritesDone();
    });
    EXPECT_TRUE(engine_->AwaitWaiting(static_cast<int>(at_once)));
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_EQ(engine_->admitted(), at_once);
    engine_->Release();
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(stream.Next(), "OK ");
    writer.join();
    EXPECT_TRUE(stream.Finish().ok());
  }
};

TEST_F(StreamTest, EachAnswerComesWhenItIsDone) {
  StartServer(TestOptionsWithMetrics());
  Attending stream(*attention_);
  engine_->Hold();
  ASSERT_TRUE(stream.Write(AttendOf(3, "slow")));
  ASSERT_TRUE(engine_->AwaitWaiting(1));
  ASSERT_TRUE(stream.Write(Malformed("quick")));
  EXPECT_EQ(stream.Next(), "INVALID_ARGUMENT MALFORMED_MESSAGE query quick");
  engine_->Release();
  const auto slow = stream.Read();
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->request_id(), "slow");
  EXPECT_EQ(slow->output().raw(), AttendOf(3).value().raw());
  EXPECT_GT(slow->timing().total_us(), 0);
  ASSERT_TRUE(stream.Write(AttendOf(2, "next")));
  EXPECT_EQ(stream.Next(), "OK next");
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());

  EXPECT_TRUE(AwaitNoCalls());
  EXPECT_TRUE(AwaitMetric(Counted("attend_stream", "OK", "vanilla"), 2));
  EXPECT_TRUE(AwaitMetric(Counted("attend_stream", "INVALID_ARGUMENT"), 1));
  EXPECT_TRUE(AwaitMetric("castor_inflight_calls{method=\"attend_stream\"}", 0));
  EXPECT_TRUE(AwaitMetric("castor_message_bytes{direction=\"out\"}", 0));
  EXPECT_EQ(Metric(Counted("attend", "OK", "vanilla")), 0);
}

TEST_F(StreamTest, TextsToo) {
  StartServer();
  grpc::ClientContext context;
  auto stream = encoder_->EncodeStream(&context);
  ASSERT_TRUE(stream->Write(EncodeOf({"one", "two"})));
  ASSERT_TRUE(stream->Write(v1::EncodeRequest()));
  stream->WritesDone();
  int64_t rows = 0, errors = 0;
  for (v1::EncodeResponse response; stream->Read(&response);) {
    rows += response.output().shape_size() > 0 ? response.output().shape(0) : 0;
    errors += response.error().code() == grpc::StatusCode::INVALID_ARGUMENT ? 1 : 0;
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(rows, 2);
  EXPECT_EQ(errors, 1);
}

TEST_F(StreamTest, AMessageIsToldWhatACallIsTold) {
  StartServer();
  Attending stream(*attention_);
  for (const absl::Status& error :
       {InvalidField("query.shape[2]", "is 0"), MakeError(Reason::kModelNotFound, "no such model"),
        QueueFull("full", milliseconds(250)), MakeError(Reason::kTooLarge, "too large"),
        MakeError(Reason::kOutOfMemory, "no memory"),
        MakeError(Reason::kDeadlineExceeded, "too late"),
        MakeError(Reason::kNotServed, "not yet")}) {
    for (const bool at_admission : {true, false}) {
      engine_->RefuseWith(at_admission ? error : absl::OkStatus());
      engine_->FailWith(at_admission ? absl::OkStatus() : error);
      const grpc::Status unary = Try(AttendOf(1, "id-7"));
      ASSERT_TRUE(stream.Write(AttendOf(1, "id-7")));
      const auto answer = stream.Read();
      ASSERT_TRUE(answer.has_value());
      EXPECT_EQ(answer->request_id(), "id-7");
      EXPECT_EQ(answer->error().SerializeAsString(), unary.error_details());
      EXPECT_FALSE(answer->has_output());
    }
  }
  engine_->FailWith(MakeError(Reason::kInternal, "at address 0xdeadbeef"));
  ASSERT_TRUE(stream.Write(AttendOf(1)));
  const auto answer = stream.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->error().code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(answer->error().message().find("deadbeef"), std::string::npos);
}

// Else the messages of full streams would stand in front of the calls of all who name no tenant.
TEST_F(StreamTest, AStreamOfNoTenantIsQueuedAsATenantOfItsOwn) {
  StartServer(TestOptionsWithMetrics());
  Attending one(*attention_), other(*attention_);
  std::vector<std::string> tenants;
  for (Attending* stream : {&one, &other, &one}) {
    ASSERT_TRUE(stream->Write(AttendOf(3)));
    EXPECT_EQ(stream->Next().substr(0, 2), "OK");
    tenants.push_back(engine_->last_call()->tenant);
  }
  EXPECT_NE(tenants[0], tenants[1]);
  EXPECT_EQ(tenants[0], tenants[2]);
  EXPECT_TRUE(tenants[0].starts_with('\n')) << "which no caller can send, and no statistics show";
  EXPECT_TRUE(Try(AttendOf(3)).ok());
  EXPECT_EQ(engine_->last_call()->tenant, "");
}

TEST_F(StreamTest, TheEarliestDeadlineOfAMessageCounts) {
  server::ServerOptions options = TestOptions();
  options.max_deadline = seconds(100);
  StartServer(options);
  const auto deadline_of = [&](Attending& stream, milliseconds timeout) {
    EXPECT_TRUE(stream.Write(WithTimeout(timeout)));
    EXPECT_EQ(stream.Next(), "OK timed");
    const auto left = *engine_->last_call()->deadline - steady_clock::now();
    return std::chrono::duration<double>(left).count();
  };
  Attending endless(*attention_);
  EXPECT_NEAR(deadline_of(endless, milliseconds(0)), 100, 2);
  EXPECT_NEAR(deadline_of(endless, seconds(50)), 50, 2);
  EXPECT_NEAR(deadline_of(endless, seconds(500)), 100, 2);
  Attending short_one(*attention_, seconds(40));
  EXPECT_NEAR(deadline_of(short_one, seconds(50)), 40, 2);
  EXPECT_NEAR(deadline_of(short_one, seconds(20)), 20, 2);
  ASSERT_TRUE(Try(WithTimeout(seconds(30))).ok());
  EXPECT_LT(*engine_->last_call()->deadline, steady_clock::now() + seconds(30));
  ASSERT_TRUE(endless.Write(WithTimeout(milliseconds(-1))));
  EXPECT_EQ(endless.Next(), "INVALID_ARGUMENT INVALID_FIELD timeout_ms timed");
}

// The limit for one message is none for the stream.
TEST_F(StreamTest, AStreamOutlivesTheLongestDeadline) {
  server::ServerOptions options = TestOptions();
  options.max_deadline = milliseconds(50);
  StartServer(options);
  Attending stream(*attention_);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(milliseconds(30));
    ASSERT_TRUE(stream.Write(AttendOf(1)));
    EXPECT_EQ(stream.Next(), "OK ");
  }
}

TEST_F(StreamTest, ADrainAnswersWhatWasAdmittedThenEndsTheStream) {
  StartServer();
  engine_->Hold();
  Attending busy(*attention_);
  Attending idle(*attention_);
  ASSERT_TRUE(busy.Write(AttendOf(1, "admitted")));
  ASSERT_TRUE(engine_->AwaitWaiting(1));
  bool drained = false;
  std::thread drainer([&] { drained = server_->Drain(); });
  // Readiness and calls go a moment earlier.
  EXPECT_TRUE(Await([&] {
    EncodeRequest probe;
    probe.input = TokenInput{};
    return !engine_->Submit(std::move(probe), [](const auto&) {}).ok();
  }));
  ASSERT_TRUE(busy.Write(AttendOf(1, "late")));
  EXPECT_EQ(busy.Next(), "UNAVAILABLE DRAINING late");
  engine_->Release();
  EXPECT_EQ(busy.Next(), "OK admitted");
  EXPECT_EQ(Outcome(busy.Finish()), "UNAVAILABLE DRAINING");
  EXPECT_EQ(Outcome(idle.Finish()), "UNAVAILABLE DRAINING");
  drainer.join();
  EXPECT_TRUE(drained);
  Attending late(*attention_);
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(StreamTest, ADrainMeetsStreamsThatEndOfThemselves) {
  for (int round = 0; round < 5; ++round) {
    StartServer();
    std::vector<std::unique_ptr<Attending>> streams;
    for (int i = 0; i < 200; ++i) {
      streams.push_back(std::make_unique<Attending>(*attention_));
      ASSERT_TRUE(streams.back()->Write(AttendOf(1)));
      EXPECT_EQ(streams.back()->Next(), "OK ");
    }
    std::thread drainer([&] { EXPECT_TRUE(server_->Drain()); });
    for (const auto& stream : streams) stream->WritesDone();
    for (const auto& stream : streams) {
      const std::string outcome = Outcome(stream->Finish());
      EXPECT_TRUE(outcome == "OK" || outcome == "UNAVAILABLE DRAINING") << outcome;
    }
    drainer.join();
  }
}

TEST_F(StreamTest, WhoCancelsOrVanishesLeavesNothingWaiting) {
  StartServer(TestOptionsWithMetrics());
  engine_->Hold();
  {
    Attending stream(*attention_);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(stream.Write(AttendOf(1)));
    ASSERT_TRUE(engine_->AwaitWaiting(5));
    stream.Cancel();
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(engine_->AwaitWaiting(0));
  {
    RawClient client(server_->port());
    const std::string message = AttendOf(1).SerializeAsString();
    ASSERT_TRUE(client.SendPreface());
    ASSERT_TRUE(client.Send(
        RawClient::HeadersOf(1, "/castor.v1.AttentionService/AttendStream") +
        RawClient::MessageOf(1, message, static_cast<uint32_t>(message.size()), false)));
    ASSERT_TRUE(engine_->AwaitWaiting(1));
    client.Vanish();
  }
  EXPECT_TRUE(engine_->AwaitWaiting(0));
  EXPECT_TRUE(AwaitNoBytes());
  EXPECT_TRUE(AwaitMetric(Counted("attend_stream", "CANCELLED", "vanilla"), 6));
}

TEST_F(StreamTest, NoMoreIsReadThanTheStreamsShareOfTheRequests) {
  StartWithBudgets(8 * kShare, int64_t{1} << 40);
  ExpectRead(8, std::vector<int64_t>(100, 1));
}

// A message larger than the share is read when it is alone.
TEST_F(StreamTest, NorThanItsShareOfTheBytes) {
  StartWithBudgets(1024, (int64_t{1} << 20) * kShare);
  std::vector<int64_t> tokens(6, 25'000);  // 600 KB, 200 back
  tokens.push_back(100'000);               // 2.4 MB
  ExpectRead(2, tokens);
}

TEST_F(StreamTest, WhoReadsNothingIsEndedAndHoldsLittle) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.transfer_timeout = milliseconds(500);
  StartWithBudgets(1024, (int64_t{4} << 20) * kShare, options);
  Attending stream(*attention_);
  const auto began = steady_clock::now();
  std::thread writer([&] {
    while (stream.Write(AttendOf(40'000))) {  // 960 KB; 320 KB back
    }
  });
  while (server_->calls_in_flight() > 0 || engine_->admitted() == 0) {
    EXPECT_LT(Metric("castor_message_bytes{direction=\"out\"}"), 6 << 20);
    ExpectAGoodAnswer();
  }
  writer.join();
  EXPECT_LT(steady_clock::now() - began, Patience(seconds(10)));
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(Metric("castor_calls_overdue_total"), 1);
  EXPECT_GT(Metric("castor_answers_lost_total{method=\"attend_stream\"}"), 0);
  EXPECT_TRUE(AwaitNoBytes());
}

TEST_F(StreamTest, AnIdleStreamEndsButNotOneThatWaitsForItsAnswer) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.transfer_timeout = milliseconds(200);
  StartServer(options);
  engine_->Hold();
  Attending idle(*attention_);
  Attending waiting(*attention_);
  ASSERT_TRUE(waiting.Write(AttendOf(1, "slow")));
  const grpc::Status idle_end = idle.Finish();
  EXPECT_EQ(Outcome(idle_end), "CANCELLED CANCELLED");
  EXPECT_THAT(idle_end.error_message(), ::testing::HasSubstr("--transfer-timeout"));
  std::this_thread::sleep_for(milliseconds(300));
  engine_->Release();
  EXPECT_EQ(waiting.Next(), "OK slow");
  EXPECT_EQ(Outcome(waiting.Finish()), "CANCELLED CANCELLED");
  EXPECT_EQ(Metric("castor_calls_overdue_total"), 2);
  EXPECT_TRUE(AwaitNoCalls());
}

TEST_F(StreamTest, AMessageOverTheLimitEndsItsStreamAlone) {
  StartServer();
  Attending bad(*attention_);
  Attending good(*attention_);
  bad.Write(AttendOf(1 << 20));  // 24 MiB
  EXPECT_EQ(bad.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(good.Write(AttendOf(1)));
  EXPECT_EQ(good.Next(), "OK ");
}

// Each cancelled stream costs a point of the connection's credit, and each answer returns one.
TEST_F(StreamTest, ManyShortStreamsThatAreCancelledAreNoMisconduct) {
  StartServer(TestOptionsWithMetrics());
  for (int i = 0; i < 1500; ++i) {
    Attending stream(*attention_);
    ASSERT_TRUE(stream.Write(AttendOf(1)));
    ASSERT_EQ(stream.Next(), "OK ");
    stream.Cancel();
    stream.Finish();
  }
  EXPECT_EQ(Metric("castor_connections_expelled_total"), 0);
}

// Each message is answered exactly once with its own bytes, whatever its neighbours are.
TEST_F(StreamTest, MixedMessagesOfManyStreamsMeetTheirOwnAnswers) {
  StartServer();
  const int kStreams = Scaled(100);
  constexpr int kMessages = 1000;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int c = 0; c < 4; ++c) channels.push_back(NewChannel());
  std::vector<std::thread> callers;
  for (int s = 0; s < kStreams; ++s) {
    callers.emplace_back([&, s] {
      const auto stub = v1::AttentionService::NewStub(channels[static_cast<size_t>(s) % 4]);
      Attending stream(*stub);
      const auto tokens = [s](int i) { return 1 + (s + i) % 50; };
      std::thread writer([&] {
        for (int i = 0; i < kMessages; ++i) {
          const std::string id = std::to_string(i);
          EXPECT_TRUE(stream.Write(i % 5 == 4 ? Malformed(id) : AttendOf(tokens(i), id)));
        }
        stream.WritesDone();
      });
      std::vector<int> answers(kMessages);
      while (const auto answer = stream.Read()) {
        const int i = std::stoi(answer->request_id());
        ++answers.at(static_cast<size_t>(i));
        EXPECT_EQ(answer->has_error(), i % 5 == 4) << answer->error().message();
        if (answer->has_error()) continue;
        EXPECT_TRUE(answer->output().raw() == AttendOf(tokens(i)).value().raw());
      }
      writer.join();
      EXPECT_TRUE(stream.Finish().ok());
      EXPECT_EQ(std::count(answers.begin(), answers.end(), 1), kMessages);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(AwaitNoBytes());
}

}  // namespace
}  // namespace castor::testing
