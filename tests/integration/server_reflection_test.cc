// Server reflection over real sockets: what generic clients ask, and streams that nobody ends.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/services/reflection_service.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

using grpc::reflection::v1::ServerReflection;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kPath[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr size_t kStreams = server::ReflectionService::kStreams;

ServerReflectionRequest ForSymbol(const std::string& symbol) {
  ServerReflectionRequest request;
  request.set_file_containing_symbol(symbol);
  return request;
}

ServerReflectionRequest ForServices() {
  ServerReflectionRequest request;
  request.set_list_services("");
  return request;
}

// One open stream.
class Asking {
 public:
  explicit Asking(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(ServerReflection::NewStub(channel)),
        stream_(stub_->ServerReflectionInfo(&context_)) {}

  bool Write(const ServerReflectionRequest& request) { return stream_->Write(request); }
  bool Read(ServerReflectionResponse* response) { return stream_->Read(response); }

  // Whether there was an answer.
  bool Ask(const ServerReflectionRequest& request, ServerReflectionResponse* response) {
    return Write(request) && Read(response);
  }
  bool Ask() {
    ServerReflectionResponse response;
    return Ask(ForServices(), &response);
  }

  void WritesDone() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  // When no more answers are read.
  grpc::Status Finish() {
    ServerReflectionResponse response;
    while (Read(&response)) {
    }
    return stream_->Finish();
  }

 private:
  std::unique_ptr<ServerReflection::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>>
      stream_;
};

class ReflectionTest : public ServerTest {
 protected:
  // Whether a new stream gets an answer.
  bool IsServed() { return Asking(channel_).Ask(); }
};

TEST_F(ReflectionTest, BothVersionsListAllServices) {
  StartServer(TestOptions());
  for (const char* version : {"v1", "v1alpha"}) {
    std::string bytes;
    const grpc::Status status = CallRaw(
        "/grpc.reflection." + std::string(version) + ".ServerReflection/ServerReflectionInfo",
        ForServices().SerializeAsString(), &bytes);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ServerReflectionResponse response;
    ASSERT_TRUE(response.ParseFromString(bytes));
    std::vector<std::string> names;
    for (const auto& service : response.list_services_response().service()) {
      names.push_back(service.name());
      // A client goes on to ask for each.
      Asking asking(channel_);
      ServerReflectionResponse answer;
      ASSERT_TRUE(asking.Ask(ForSymbol(service.name()), &answer));
      EXPECT_GE(answer.file_descriptor_response().file_descriptor_proto_size(), 1)
          << service.name();
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(
        names,
        (std::vector<std::string>{
            "castor.v1.AttentionService", "castor.v1.EncoderService", "castor.v1.ModelService",
            "castor.v1.ServerService", "castor.v1.SharedMemoryService", "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
            "inference.GRPCInferenceService", "tei.v1.Embed", "tei.v1.Info", "tei.v1.Predict",
            "tei.v1.Rerank", "tei.v1.Tokenize"}));
  }
}

TEST_F(ReflectionTest, CanBeOff) {
  server::ServerOptions options = TestOptions();
  options.reflection = false;
  StartServer(options);
  EXPECT_EQ(Asking(channel_).Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ReflectionTest, AnUnknownSymbolIsAnErrorInsideTheStream) {
  StartServer();
  Asking asking(channel_);
  ServerReflectionResponse response;
  ASSERT_TRUE(asking.Ask(ForSymbol("no.such"), &response));
  EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(asking.Ask(ServerReflectionRequest(), &response));
  EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(asking.Ask(ForSymbol("castor.v1.AttentionService"), &response));
  EXPECT_GT(response.file_descriptor_response().file_descriptor_proto_size(), 1);
  ASSERT_TRUE(asking.Ask(ForSymbol("castor.v1.AttentionService"), &response));
  EXPECT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 1) << "once a stream";
  asking.WritesDone();
  const grpc::Status status = asking.Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ReflectionTest, AHundredRequestsAtOnceAreAnsweredInTurn) {
  StartServer();
  Asking asking(channel_);
  for (int i = 0; i < 100; ++i) {
    ServerReflectionRequest request = ForSymbol("castor.v1.AttentionService");
    request.set_host(std::to_string(i));
    ASSERT_TRUE(asking.Write(request));
  }
  asking.WritesDone();
  for (int i = 0; i < 100; ++i) {
    ServerReflectionResponse response;
    ASSERT_TRUE(asking.Read(&response)) << i;
    EXPECT_EQ(response.valid_host(), std::to_string(i));
  }
  EXPECT_TRUE(asking.Finish().ok());
}

TEST_F(ReflectionTest, BytesThatAreNoRequestEndTheStream) {
  StartServer();
  EXPECT_EQ(CallRaw(kPath, "\xff").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status status =
      CallRaw(kPath, ForSymbol(std::string(70'000, 'x')).SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailsOf(status).info.reason(), "TOO_LARGE");
}

TEST_F(ReflectionTest, OpenStreamsDoNotHoldTheDrainUp) {
  server::ServerOptions options = TestOptions();
  options.drain_deadline = seconds(300);
  StartServer(options);
  std::vector<std::unique_ptr<Asking>> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(std::make_unique<Asking>(channel_));
    ASSERT_TRUE(idle.back()->Ask());
  }
  RawClient deaf(server_->port());  // an answer to it is under way for ever
  const std::string message = ForServices().SerializeAsString();
  ASSERT_TRUE(deaf.SendPrefaceOfADeafPeer() && deaf.Send(RawClient::HeadersOf(1, kPath)) &&
              deaf.Send(RawClient::MessageOf(1, message, static_cast<uint32_t>(message.size()))));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(server_->Drain());
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(60));
  for (auto& asking : idle) {
    const grpc::Status status = asking->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_EQ(DetailsOf(status).info.reason(), "DRAINING");
  }
  EXPECT_TRUE(deaf.AwaitClosed());
}

TEST_F(ReflectionTest, StreamsInFullSwingEndWithTheServer) {
  StartServer();
  std::atomic<int> answers = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, channel = NewChannel()] {
      for (;;) {
        Asking asking(channel);
        while (asking.Ask()) ++answers;
        if (asking.Finish().error_code() == grpc::StatusCode::UNAVAILABLE) return;
      }
    });
  }
  ASSERT_TRUE(Await([&] { return answers > 200; }));
  EXPECT_TRUE(server_->Drain());
  for (std::thread& caller : callers) caller.join();
}

TEST_F(ReflectionTest, IdleStreamsAreFewAndTakeNothingFromOthers) {
  StartServer();
  std::vector<std::unique_ptr<Asking>> idle;
  for (size_t i = 0; i < kStreams; ++i) {
    idle.push_back(std::make_unique<Asking>(channel_));
    ASSERT_TRUE(idle.back()->Ask()) << i;
  }
  const grpc::Status late = Asking(channel_).Finish();
  EXPECT_EQ(late.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailsOf(late).info.reason(), "QUEUE_FULL");
  EXPECT_TRUE(Try(AttendOf(2)).ok());
  EXPECT_TRUE(idle.front()->Ask());
  for (auto& asking : idle) asking->Cancel();
  idle.clear();
  EXPECT_TRUE(Await([this] { return IsServed(); })) << "their room comes back";
}

TEST_F(ReflectionTest, AStreamThatAsksNothingIsEnded) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.transfer_timeout = milliseconds(100);
  StartServer(options);
  Asking asked(channel_);
  asked.Ask();  // a slow machine may have ended it before
  EXPECT_EQ(asked.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(Asking(channel_).Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(Metric("castor_calls_overdue_total"), 2);
}

TEST_F(ReflectionTest, AnAnswerThatIsNotTakenEndsItsStream) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.transfer_timeout = milliseconds(200);
  StartServer(options);
  RawClient deaf(server_->port());
  ASSERT_TRUE(deaf.SendPrefaceOfADeafPeer() && deaf.Send(RawClient::HeadersOf(1, kPath)));
  const std::string request = ForSymbol("castor.v1.AttentionService").SerializeAsString();
  const auto size = static_cast<uint32_t>(request.size());
  // The frames of many requests, none of which ends the stream.
  std::string prefix(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) prefix += static_cast<char>(size >> shift);
  for (int i = 0; i < 1000; ++i) {
    if (!deaf.Send(RawClient::DataOf(1, prefix + request, false))) break;
  }
  EXPECT_TRUE(Await([this] { return Metric("castor_calls_overdue_total") == 1; }));
  EXPECT_TRUE(IsServed());
}

TEST_F(ReflectionTest, CallersThatVanishLeaveNothing) {
  StartServer();
  const std::string message = ForServices().SerializeAsString();
  const auto size = static_cast<uint32_t>(message.size());
  for (int i = 0; i < Scaled(300); ++i) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.SendPreface() && client.Send(RawClient::HeadersOf(1, kPath)));
    ASSERT_TRUE(i % 3 == 0 || client.Send(RawClient::MessageOf(1, message, size)));
    ASSERT_TRUE(i % 3 < 2 || client.AwaitGreeting());
    client.Vanish();
  }
  std::vector<std::unique_ptr<Asking>> all;
  EXPECT_TRUE(Await([&] {  // there is room for as many as ever
    all.clear();
    for (size_t i = 0; i < kStreams; ++i) {
      all.push_back(std::make_unique<Asking>(channel_));
      if (!all.back()->Ask()) return false;
    }
    return true;
  }));
}

}  // namespace
}  // namespace castor::testing
