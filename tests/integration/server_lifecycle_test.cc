// Health and drain, in-process: what callers and probes see while a server starts, serves, drains
// and stops. No admitted call may be lost.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "tei/v1/tei.pb.h"
#include "tests/integration/observed/health_client.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/temporary_folder.h"

namespace castor::testing {
namespace {

using grpc::health::v1::HealthCheckResponse;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class ServerLifecycleTest : public ServerTest {
 protected:
  HealthCheckResponse::ServingStatus Check(const std::string& name) {
    return CheckHealth(channel_, name);
  }
};

TEST_F(ServerLifecycleTest, EveryNameServesAfterStart) {
  StartServer();
  for (const char* name : {"", "liveness", "readiness", "model/tiny", "castor.v1.AttentionService",
                           "castor.v1.EncoderService", "castor.v1.ModelService",
                           "castor.v1.ServerService", "inference.GRPCInferenceService"}) {
    EXPECT_EQ(Check(name), HealthCheckResponse::SERVING) << name;
  }
  EXPECT_EQ(Check("model/other"), HealthCheckResponse::SERVICE_UNKNOWN);
  Watching unknown(channel_, "model/other");
  EXPECT_EQ(unknown.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  unknown.Cancel();
  EXPECT_EQ(unknown.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// A stream that lasts would keep it.
TEST_F(ServerLifecycleTest, ALongNameIsNotWatched) {
  StartServer();
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(std::string(1 << 20, 'x'));
  const grpc::Status status = CallRaw("/grpc.health.v1.Health/Watch", request.SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailsOf(status).info.reason(), "TOO_LARGE");
}

TEST_F(ServerLifecycleTest, DrainAnswersWhatWasAdmittedAndRefusesWhatIsNew) {
  StartServer(TestOptionsWithMetrics());
  engine_->Hold();
  constexpr int kCalls = 8;
  std::vector<grpc::Status> statuses(kCalls);
  std::vector<std::thread> callers;
  for (int i = 0; i < kCalls; ++i) {
    callers.emplace_back([&, i] { statuses[i] = Try(AttendOf(4)); });
  }
  ASSERT_TRUE(engine_->AwaitWaiting(kCalls));

  Watching readiness(channel_, "readiness");
  ASSERT_EQ(readiness.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(Metric("castor_ready"), 1);
  EXPECT_EQ(Metric("castor_draining"), 0);
  bool drained = false;
  std::thread drainer([&] { drained = server_->Drain(); });
  EXPECT_EQ(readiness.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Check("liveness"), HealthCheckResponse::SERVING);

  // Readiness falls just before new work is refused. A call that still gets in waits with the
  // others, so each probe has a short deadline.
  const auto deadline = steady_clock::now() + seconds(20);
  grpc::Status refused;
  do {
    AttendCall probe;
    probe.context.set_deadline(std::chrono::system_clock::now() + milliseconds(100));
    refused = probe.Run(*attention_, AttendOf(1));
  } while (refused.error_code() != grpc::StatusCode::UNAVAILABLE && steady_clock::now() < deadline);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(DetailsOf(refused).info.reason(), "DRAINING");
  EXPECT_EQ(Metric("castor_ready"), 0);
  EXPECT_EQ(Metric("castor_draining"), 1);

  engine_->Release();
  drainer.join();
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(drained);
  for (const grpc::Status& status : statuses) EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(readiness.Next(), HealthCheckResponse::UNKNOWN);  // the stream has ended
  EXPECT_EQ(readiness.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// With nothing of a message, or half of it, or some of the messages that make one request. Not at
// the drain's deadline, which is half a minute away.
TEST_F(ServerLifecycleTest, ADrainEndsCallsWhoseMessageHasNotCome) {
  StartServer();
  tei::v1::RerankStreamRequest part;
  part.set_query("which?");
  part.set_text("this one");
  const grpc::Slice bytes(part.SerializeAsString());
  using Stream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
  struct OpenCall {
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream;
  };
  std::vector<std::unique_ptr<OpenCall>> calls;
  for (const char* const path :
       {"/castor.v1.AttentionService/Attend", "/castor.v1.EncoderService/Encode",
        "/castor.v1.ServerService/GetServerInfo", "/inference.GRPCInferenceService/ModelInfer",
        "/tei.v1.Embed/Embed", "/tei.v1.Rerank/RerankStream", "/tei.v1.Rerank/RerankStream"}) {
    OpenCall& call = *calls.emplace_back(std::make_unique<OpenCall>());
    const grpc::internal::RpcMethod method(path, grpc::internal::RpcMethod::BIDI_STREAMING);
    call.stream.reset(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            channel_.get(), method, &call.context));
  }
  ASSERT_TRUE(calls.back()->stream->Write(grpc::ByteBuffer(&bytes, 1)));
  RawClient half(server_->port());
  ASSERT_TRUE(half.SendPreface());
  ASSERT_TRUE(half.BeginCall("/castor.v1.AttentionService/Attend", "half", 1000));
  const auto open = static_cast<int64_t>(calls.size()) + 1;
  ASSERT_TRUE(Await([&] { return server_->calls_in_flight() == open; }));

  const auto before = steady_clock::now();
  EXPECT_TRUE(server_->Drain());
  EXPECT_LT(steady_clock::now() - before, TestOptions().drain_deadline / 2);
  for (const auto& call : calls) {
    EXPECT_EQ(Outcome(call->stream->Finish()), "UNAVAILABLE DRAINING");
  }
}

// Another replica: answers every call with nothing.
class OtherServer : public v1::AttentionService::CallbackService {
 public:
  OtherServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context, const v1::AttendRequest*,
                                   v1::AttendResponse*) override {
    ++calls_;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  int port() const { return port_; }
  int64_t calls() const { return calls_; }

 private:
  int port_ = 0;
  std::atomic<int64_t> calls_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Without retries, as most callers are. Refusals, or resets in gRPC's shutdown, would show.
TEST_F(ServerLifecycleTest, CallersWithAnotherServerLoseNothing) {
  server::ServerOptions options = TestOptions();
  options.drain_delay = milliseconds(50);
  StartServer(options);
  OtherServer other;
  grpc::ChannelArguments arguments;
  arguments.SetLoadBalancingPolicyName("round_robin");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::string target = "ipv4:" + address() + ",127.0.0.1:" + std::to_string(other.port());
  constexpr int kCallers = 8;
  std::atomic<bool> stop = false;
  std::atomic<int64_t> answered = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      grpc::ChannelArguments own = arguments;
      own.SetInt("castor.test", i);
      auto stub = v1::AttentionService::NewStub(
          grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), own));
      while (!stop) {
        AttendCall call;
        const grpc::Status status = call.Run(*stub, AttendOf(16));
        EXPECT_TRUE(status.ok()) << status.error_code() << ": " << status.error_message();
        ++answered;
      }
    });
  }
  EXPECT_TRUE(Await([&] { return engine_->admitted() > 200 && other.calls() > 200; }));
  EXPECT_TRUE(server_->Drain());
  const int64_t before = other.calls();
  EXPECT_TRUE(Await([&] { return other.calls() > before + 200; }));
  stop = true;
  for (std::thread& caller : callers) caller.join();
}

// Whether the call waits or hangs in the engine.
TEST_F(ServerLifecycleTest, DrainCutsOffWhatMissesItsDeadline) {
  server::ServerOptions options = TestOptions();
  options.drain_deadline = milliseconds(200);
  for (const bool running : {false, true}) {
    StartServer(options);
    running ? engine_->HoldRunning() : engine_->Hold();
    grpc::Status status;
    std::thread caller([&] { status = Try(AttendOf(1)); });
    ASSERT_TRUE(running ? engine_->AwaitRunning() : engine_->AwaitWaiting(1));
    EXPECT_FALSE(server_->Drain());
    if (running) engine_->Release();
    caller.join();
    EXPECT_FALSE(status.ok());
    if (!running) {
      EXPECT_EQ(DetailsOf(status).info.reason(), "DRAINING");
    }
  }
}

TEST_F(ServerLifecycleTest, EngineFaultTakesReadinessAwayAndEndsTheServer) {
  server::ServerOptions options = TestOptions();
  options.drain_delay = seconds(3600);  // must not be waited for
  StartServer(options);
  Watching readiness(channel_, "readiness");
  ASSERT_EQ(readiness.Next(), HealthCheckResponse::SERVING);
  engine_->Break();
  EXPECT_EQ(Try(AttendOf(1)).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(readiness.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(server_->Wait(), server::Outcome::kEngineFault);
}

TEST_F(ServerLifecycleTest, AnEngineThatHangsTakesLivenessAwayUntilItGoesOn) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.watchdog_timeout = milliseconds(40);
  StartServer(options);
  Watching liveness(channel_, "liveness");
  Watching readiness(channel_, "readiness");
  ASSERT_EQ(liveness.Next(), HealthCheckResponse::SERVING);
  ASSERT_EQ(readiness.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(Metric("castor_engine_stalled"), 0);

  engine_->HoldRunning();
  grpc::Status status;
  std::thread caller([&] { status = Try(AttendOf(1)); });
  EXPECT_EQ(liveness.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(readiness.Next(), HealthCheckResponse::NOT_SERVING);
  while (Metric("castor_ready") != 0) std::this_thread::yield();  // after health
  EXPECT_EQ(Metric("castor_engine_stalled"), 1);

  engine_->Release();
  EXPECT_EQ(liveness.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(readiness.Next(), HealthCheckResponse::SERVING);
  caller.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerLifecycleTest, AStallThatEndsDuringADrainBringsNoReadinessBack) {
  server::ServerOptions options = TestOptions();
  options.watchdog_timeout = milliseconds(40);
  StartServer(options);
  Watching liveness(channel_, "liveness");
  ASSERT_EQ(liveness.Next(), HealthCheckResponse::SERVING);
  engine_->HoldRunning();
  std::thread caller([&] { EXPECT_TRUE(Try(AttendOf(1)).ok()); });
  ASSERT_TRUE(engine_->AwaitRunning());
  Watching readiness(channel_, "readiness");
  ASSERT_EQ(liveness.Next(), HealthCheckResponse::NOT_SERVING);
  std::thread drainer([&] { EXPECT_TRUE(server_->Drain()); });
  engine_->Release();
  caller.join();
  drainer.join();
  // SERVING may come first, if the stream began before the engine hung, but never again later.
  HealthCheckResponse::ServingStatus last = HealthCheckResponse::UNKNOWN;
  for (auto next = readiness.Next(); next != HealthCheckResponse::UNKNOWN;
       next = readiness.Next()) {
    last = next;
  }
  EXPECT_EQ(last, HealthCheckResponse::NOT_SERVING);
}

TEST_F(ServerLifecycleTest, AnyPortThatIsTakenIsAnErrorThatNamesIt) {
  StartServer();
  using Options = server::ServerOptions;
  for (std::string Options::*const listen : {&Options::metrics_listen, &Options::health_listen}) {
    Options options = TestOptions();
    options.*listen = address();
    const auto second = server::Server::Start(options, std::make_unique<FakeEngine>());
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.status().message().find(address()), absl::string_view::npos);
  }
}

// gRPC alone would let the second server take over the path, and whichever ended first would remove
// it.
TEST_F(ServerLifecycleTest, ALiveServersUnixSocketIsTaken) {
  const TemporaryFolder folder;
  server::ServerOptions options = TestOptions();
  options.listen = "unix:" + (folder / "castor.sock");
  for (int life = 0; life < 2; ++life) {
    auto first = server::Server::Start(options, std::make_unique<FakeEngine>());
    ASSERT_TRUE(first.ok()) << first.status();
    {
      const auto second = server::Server::Start(options, std::make_unique<FakeEngine>());
      ASSERT_FALSE(second.ok());
      EXPECT_NE(second.status().message().find("another server"), absl::string_view::npos);
    }
    auto stub = v1::AttentionService::NewStub(
        grpc::CreateChannel(options.listen, grpc::InsecureChannelCredentials()));
    AttendCall call;
    const grpc::Status status = call.Run(*stub, AttendOf(1));
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing is left behind";
}

}  // namespace
}  // namespace castor::testing
