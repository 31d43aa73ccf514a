// --health-listen: a second port for probes, with the same statuses and bounds of its own.

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "tests/integration/observed/health_client.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using grpc::health::v1::HealthCheckResponse;

constexpr char kWatchPath[] = "/grpc.health.v1.Health/Watch";

server::ServerOptions WithHealthPort(server::ServerOptions options = TestOptions()) {
  options.health_listen = "127.0.0.1:0";
  return options;
}

class HealthPortTest : public ServerTest {
 protected:
  std::shared_ptr<grpc::Channel> NewProbe() const { return NewChannelTo(server_->health_port()); }

  void ExpectAGoodAnswer() {
    AttendCall call;
    const grpc::Status status = call.Run(*v1::AttentionService::NewStub(NewChannel()), AttendOf(2));
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
};

TEST_F(HealthPortTest, SaysWhatTheMainPortSays) {
  StartServer(WithHealthPort());
  ASSERT_NE(server_->health_port(), server_->port());
  const auto probe = NewProbe();
  for (const char* name : {"", "liveness", "readiness", "model/tiny", "castor.v1.AttentionService",
                           "model/other", "grpc.health.v1.Health"}) {
    EXPECT_EQ(CheckHealth(probe, name), CheckHealth(channel_, name)) << name;
  }
  EXPECT_EQ(CheckHealth(probe, "readiness"), HealthCheckResponse::SERVING);
  const auto all = ListHealth(probe);
  EXPECT_EQ(ListHealth(channel_), all);
  EXPECT_TRUE(all.contains("model/tiny") && all.contains("") && all.contains("liveness"));
  for (const auto& [name, status] : all) {
    EXPECT_EQ(status, HealthCheckResponse::SERVING) << name;
    EXPECT_EQ(status, CheckHealth(probe, name)) << name;
  }

  Watching here(probe, "readiness");
  Watching there(channel_, "readiness");
  EXPECT_EQ(here.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(there.Next(), HealthCheckResponse::SERVING);
  engine_->Hold();
  std::thread caller([this] { EXPECT_TRUE(Try(AttendOf(1)).ok()); });
  ASSERT_TRUE(engine_->AwaitWaiting(1));
  std::thread drainer([this] { EXPECT_TRUE(server_->Drain()); });
  EXPECT_EQ(here.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(there.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(CheckHealth(probe, "readiness"), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(CheckHealth(probe, "liveness"), HealthCheckResponse::SERVING);
  engine_->Release();
  caller.join();
  drainer.join();
  for (Watching* watching : {&here, &there}) {
    EXPECT_EQ(watching->Next(), HealthCheckResponse::UNKNOWN);  // the stream has ended
    EXPECT_EQ(watching->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(HealthPortTest, ServesNothingElse) {
  StartServer(WithHealthPort());
  channel_ = NewProbe();  // where CallRaw goes
  EXPECT_TRUE(CallRaw("/grpc.health.v1.Health/Check", "").ok());
  for (const char* method :
       {"/castor.v1.AttentionService/Attend", "/castor.v1.EncoderService/Encode",
        "/castor.v1.ServerService/GetServerInfo", "/castor.v1.ModelService/ListModels",
        "/castor.v1.SharedMemoryService/ListSharedMemory",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    EXPECT_EQ(CallRaw(method, "").error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
  EXPECT_EQ(CallRaw("/grpc.health.v1.Health/Check", std::string(1 << 20, 'x')).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// A probe cannot say who it is.
TEST_F(HealthPortTest, AsksNobodyWhoTheyAre) {
  StartServer(WithHealthPort(), std::make_unique<FakeEngine>(), std::make_unique<Closed>());
  EXPECT_EQ(CheckHealth(NewProbe(), "readiness"), HealthCheckResponse::SERVING);
  EXPECT_EQ(CallRaw("/grpc.health.v1.Health/Check", "").error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(HealthPortTest, AFloodOfConnectionsStaysThere) {
  server::ServerOptions options = WithHealthPort(TestOptionsWithMetrics());
  options.max_connections = 4;
  options.max_health_connections = 4;
  StartServer(options);
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 20; ++i) {
    flood.push_back(std::make_unique<RawClient>(server_->health_port()));
  }
  EXPECT_TRUE(AwaitMetric("castor_connections_refused_total{cause=\"host\"}", 17));
  EXPECT_EQ(Metric("castor_connections"), 3);
  ExpectAGoodAnswer();
  flood.clear();
  EXPECT_TRUE(AwaitMetric("castor_connections", 0));
  EXPECT_EQ(CheckHealth(NewProbe(), ""), HealthCheckResponse::SERVING);
}

TEST_F(HealthPortTest, WatchesTakeNoRoomFromChecksNorFromTheMainPort) {
  server::ServerOptions options = WithHealthPort();
  options.max_calls = 8;  // one health check at a time
  StartServer(options);
  const auto probe = NewProbe();
  std::vector<std::unique_ptr<Watching>> watches;
  for (int i = 0; i < 24; ++i) {  // one host's
    watches.push_back(std::make_unique<Watching>(probe, ""));
    ASSERT_EQ(watches.back()->Next(), HealthCheckResponse::SERVING) << i;
  }
  Watching late(probe, "");
  EXPECT_EQ(late.Next(), HealthCheckResponse::UNKNOWN);
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(CheckHealth(probe, ""), HealthCheckResponse::SERVING);
  EXPECT_EQ(CheckHealth(channel_, ""), HealthCheckResponse::SERVING);
  ExpectAGoodAnswer();
}

// Whose streams have no room for an answer.
TEST_F(HealthPortTest, DeafWatchesHoldNoDrainUp) {
  server::ServerOptions options = WithHealthPort();
  options.drain_deadline = std::chrono::seconds(300);
  StartServer(options);
  RawClient deaf(server_->health_port());
  ASSERT_TRUE(deaf.SendPrefaceOfADeafPeer());
  for (uint32_t stream = 1; stream < 20; stream += 2) {
    ASSERT_TRUE(
        deaf.Send(RawClient::HeadersOf(stream, kWatchPath) + RawClient::MessageOf(stream, "", 0)));
  }
  EXPECT_EQ(CheckHealth(NewProbe(), ""), HealthCheckResponse::SERVING);
  EXPECT_TRUE(server_->Drain());
  EXPECT_TRUE(deaf.AwaitClosed());
}

TEST_F(HealthPortTest, GoesWithAMainPortThatIsTaken) {
  StartServer();
  server::ServerOptions options = WithHealthPort();
  options.listen = address();
  EXPECT_FALSE(server::Server::Start(options, std::make_unique<FakeEngine>()).ok());
}

}  // namespace
}  // namespace castor::testing
