// Streams of tei.v1: the order of answers, how they end, and what RerankStream makes the server
// hold.

#include "engine/base/error.h"
#include "engine/engine.h"
#include "tests/integration/tei/fixture.h"

namespace castor::testing {
namespace {

// ---- streams, of an engine whose answers wait

class ServerTeiStreamTest : public ServerTeiTest {
 protected:
  void SetUp() override {
    StartServer();
    Connect();
    stream_ = embed_->EmbedStream(&context_);
  }

  void Write(const std::string& text) { stream_->Write(EmbedOf(text)); }
  int Answers() {
    tei::EmbedResponse response;
    int answers = 0;
    while (stream_->Read(&response)) ++answers;
    return answers;
  }

  // An answer that waits, a failure, and another answer that waits.
  void HoldAnswersAroundAFailure() {
    engine_->Hold();
    for (const char* text : {"cat", "", "cat"}) Write(text);
    ASSERT_TRUE(engine_->AwaitWaiting(2));
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<tei::EmbedRequest, tei::EmbedResponse>> stream_;
};

TEST_F(ServerTeiStreamTest, TheFirstFailureEndsItAfterTheAnswersBefore) {
  HoldAnswersAroundAFailure();
  engine_->Release();
  EXPECT_EQ(Answers(), 1);
  EXPECT_EQ(Code(stream_->Finish()), "3 Input validation error: `inputs` cannot be empty");
  EXPECT_TRUE(AwaitNoCalls());
}

TEST_F(ServerTeiStreamTest, ACancelledOneLeavesNothing) {
  HoldAnswersAroundAFailure();
  context_.TryCancel();
  EXPECT_EQ(stream_->Finish().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(AwaitNoCalls());
  engine_->Release();
}

TEST_F(ServerTeiStreamTest, OverloadHasItsCode) {
  engine_->RefuseWith(QueueFull("full", std::chrono::milliseconds(10)));
  Embed(EmbedOf("cat"));
  EXPECT_EQ(status_.error_code(), grpc::RESOURCE_EXHAUSTED);
}

// ---- streams of the real engine

// The texts take different times; the answers come in the order of the texts.
TEST_F(ServerTeiTest, AStreamsAnswersComeInOrder) {
  Start({"tiny_bert"});
  std::vector<tei::EmbedRequest> requests;
  std::vector<tei::EmbedResponse> expected;
  for (int i = 0; i < 60; ++i) {
    std::string text;
    for (int words = 0; words <= i * 37 % 30; ++words) text += words % 2 == 0 ? "cat " : "dog ";
    requests.push_back(EmbedOf(text));
    requests.back().set_truncate(true);
    expected.push_back(Embed(requests.back()));
    ASSERT_TRUE(status_.ok()) << status_.error_message();
  }
  const auto expect_answers = [&](size_t count, bool fails) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Patience(std::chrono::seconds(60)));
    const auto stream = embed_->EmbedStream(&context);
    for (size_t i = 0; i < requests.size(); ++i) {
      tei::EmbedRequest request = requests[i];
      // The tokenizer thread finds that it is too long.
      if (fails && i == count) {
        request.set_truncate(false);
        for (int words = 0; words < 200; ++words) request.mutable_inputs()->append("cat ");
      }
      if (!stream->Write(request)) break;
    }
    stream->WritesDone();
    tei::EmbedResponse answer;
    size_t answers = 0;
    for (; stream->Read(&answer); ++answers) {
      ASSERT_LT(answers, count);
      const tei::EmbedResponse& alone = expected[answers];
      EXPECT_EQ(answer.metadata().compute_tokens(), alone.metadata().compute_tokens());
      for (int k = 0; k < alone.embeddings_size(); ++k) {
        ASSERT_NEAR(answer.embeddings(k), alone.embeddings(k), 1e-5) << answers;
      }
    }
    EXPECT_EQ(answers, count);
    EXPECT_EQ(context.GetServerInitialMetadata().count("x-total-time"), 0u);
    EXPECT_EQ(stream->Finish().error_code(), fails ? grpc::INVALID_ARGUMENT : grpc::OK);
  };
  expect_answers(requests.size(), false);
  expect_answers(30, true);
  expect_answers(0, true);
  EXPECT_TRUE(AwaitNoBytes());
}

// ---- what RerankStream gathers

class ServerTeiGatheringTest : public ServerTeiTest {
 protected:
  // A call that has sent a text and may send more.
  struct Call {
    grpc::ClientContext context;
    tei::RerankResponse response;
    std::unique_ptr<grpc::ClientWriter<tei::RerankStreamRequest>> writer;

    grpc::Status End() {
      writer->WritesDone();
      return writer->Finish();
    }
  };
  std::unique_ptr<Call> Begin(const std::string& tenant, size_t bytes = 3) {
    auto call = std::make_unique<Call>();
    call->context.set_deadline(std::chrono::system_clock::now() +
                               Patience(std::chrono::seconds(60)));
    if (!tenant.empty()) call->context.AddMetadata("castor-tenant", tenant);
    call->writer = rerank_->RerankStream(&call->context, &call->response);
    tei::RerankStreamRequest part;
    part.set_query("answers");
    part.set_text(std::string(bytes, 'a'));
    part.set_truncate(true);
    call->writer->Write(part);
    return call;
  }
  grpc::StatusCode Whole(const std::string& tenant, size_t bytes = 3) {
    return Begin(tenant, bytes)->End().error_code();
  }
  // A call whose text has arrived: one of `others` bytes is refused next to it. Had that come
  // first, the call might itself have been refused, so it begins again.
  std::unique_ptr<Call> BeginAndHold(const std::string& tenant, size_t bytes = 3,
                                     size_t others = 3) {
    std::unique_ptr<Call> call;
    EXPECT_TRUE(Await([&] {
      call = Begin(tenant, bytes);
      if (Whole(tenant, others) == grpc::RESOURCE_EXHAUSTED) return true;
      call->context.TryCancel();
      call->writer->Finish();
      EXPECT_TRUE(AwaitNoCalls());
      return false;
    })) << tenant;
    return call;
  }
};

TEST_F(ServerTeiGatheringTest, CountsAgainstItsTenantsQuotas) {
  EngineOptions engine;
  engine.tenants["otter"] = {.max_queued_requests = 1, .max_queued_bytes = 1 << 20};
  Start({"cross_encoder"}, TestOptions(), engine);
  auto open = BeginAndHold("otter");
  tenant_ = "otter";
  Rerank(RerankOf("answers", {"the mill"}));
  EXPECT_EQ(status_.error_code(), grpc::RESOURCE_EXHAUSTED) << "it counts as a request";
  EXPECT_EQ(Whole("beaver"), grpc::OK);
  EXPECT_EQ(Whole(""), grpc::OK);
  const grpc::Status own = open->End();
  EXPECT_TRUE(own.ok()) << own.error_message() << ", which is admitted by the same quota";
  EXPECT_EQ(open->response.ranks_size(), 1);
  EXPECT_TRUE(Await([&] { return Whole("otter") == grpc::OK; }));
  EXPECT_EQ(Whole("otter", 2 << 20), grpc::RESOURCE_EXHAUSTED) << "of bytes";
  open = BeginAndHold("otter");
  open->context.TryCancel();
  EXPECT_EQ(open->writer->Finish().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(Await([&] { return Whole("otter") == grpc::OK; }));
}

// Of 2 MiB, a sixteenth of the budget. Who names no tenant is known by the host.
TEST_F(ServerTeiGatheringTest, NoTenantAndNoHostHoldsMoreThanThreeQuarters) {
  EngineOptions engine;
  engine.max_queued_bytes = 32 << 20;
  Start({"cross_encoder"}, TestOptions(), engine);
  for (const std::string greedy : {"otter", ""}) {
    auto open = BeginAndHold(greedy, 1'500'000, 100'000);
    EXPECT_EQ(Whole("beaver", 400'000), grpc::OK);
    EXPECT_EQ(Whole(greedy.empty() ? "otter" : "", 400'000), grpc::OK);
    EXPECT_EQ(open->End().error_code(), grpc::INVALID_ARGUMENT) << "over --max-text-bytes";
    EXPECT_TRUE(Await([&] { return Whole(greedy, 100'000) == grpc::OK; }));
  }
}

TEST_F(ServerTeiGatheringTest, EndsWhenTheRestDoesNotCome) {
  server::ServerOptions options = TestOptions();
  options.transfer_timeout = std::chrono::milliseconds(300);
  EngineOptions engine;
  engine.tenants["otter"].max_queued_requests = 1;
  Start({"cross_encoder"}, options, engine);
  auto idle = Begin("otter");
  EXPECT_EQ(idle->writer->Finish().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(AwaitNoCalls());
  EXPECT_EQ(Whole("otter"), grpc::OK);
}

}  // namespace
}  // namespace castor::testing
