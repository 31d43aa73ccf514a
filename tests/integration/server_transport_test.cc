// The layer between sockets and handlers, over real sockets: bounds on connections, calls and bytes
// that hold whatever a peer acknowledges, reads or sends.

#include <chrono>
#include <string>

#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kAttendPath[] = "/castor.v1.AttentionService/Attend";

std::string CallOf(uint32_t stream, const std::string& message) {
  return RawClient::HeadersOf(stream, kAttendPath) +
         RawClient::MessageOf(stream, message, static_cast<uint32_t>(message.size()));
}

class TransportTest : public ServerTest {};

// gRPC enforces its limit on streams only against peers that have acknowledged it; this one never
// does.
TEST_F(TransportTest, APeerThatAcknowledgesNothingHasFewCalls) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.max_concurrent_streams = 10;
  StartServer(options);
  engine_->Hold();
  RawClient client(server_->port());
  ASSERT_TRUE(client.SendPreface());
  const std::string message = AttendOf(2).SerializeAsString();
  for (uint32_t call = 0; call < 200; ++call)
    ASSERT_TRUE(client.Send(CallOf(2 * call + 1, message)));
  const std::string refused =
      "castor_requests_total{code=\"RESOURCE_EXHAUSTED\",kernel=\"none\",method=\"attend\"}";
  EXPECT_TRUE(AwaitMetric(refused, 180));
  EXPECT_TRUE(Await([&] { return engine_->admitted() == 20; }));  // twice the announced limit
  engine_->Release();
  ExpectAGoodAnswer();
}

// One host may have three quarters of all calls, over any number of connections.
TEST_F(TransportTest, CallsOfAllConnectionsTogetherAreBounded) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.max_calls = 4;
  StartServer(options);
  engine_->Hold();
  const std::string message = AttendOf(2).SerializeAsString();
  RawClient clients[] = {RawClient(server_->port()), RawClient(server_->port()),
                         RawClient(server_->port())};
  for (RawClient& client : clients) {
    ASSERT_TRUE(client.SendPreface() && client.Send(CallOf(1, message)));
  }
  ASSERT_TRUE(engine_->AwaitWaiting(3));
  const grpc::Status status = Try(AttendOf(2));
  EXPECT_EQ(Outcome(status), "RESOURCE_EXHAUSTED QUEUE_FULL");
  engine_->Release();
  EXPECT_TRUE(AwaitNoCalls());
  ExpectAGoodAnswer();
}

TEST_F(TransportTest, MetadataBeyondTheLimitIsRefusedAndItsSenderDisconnected) {
  StartServer(TestOptionsWithMetrics());
  RawClient client(server_->port());
  ASSERT_TRUE(client.SendPreface());
  const std::string large(12'000, 'v');  // the announced limit is 8 KiB
  for (uint32_t call = 0; call < 40; ++call) {
    if (!client.Send(RawClient::HeadersOf(2 * call + 1, kAttendPath, {"x-large", large}))) break;
  }
  EXPECT_TRUE(client.AwaitClosed());
  EXPECT_TRUE(AwaitMetric("castor_connections_expelled_total", 1));
  EXPECT_EQ(engine_->admitted(), 0);
  EXPECT_TRUE(AwaitNoCalls());
  ExpectAGoodAnswer();
}

TEST_F(TransportTest, APeerThatResetsWithoutEndIsDisconnected) {
  StartServer(TestOptionsWithMetrics());
  RawClient client(server_->port());
  ASSERT_TRUE(client.SendPreface());
  for (uint32_t call = 0; call < 20'000; ++call) {
    const uint32_t stream = 2 * call + 1;
    if (!client.Send(RawClient::HeadersOf(stream, kAttendPath) + RawClient::ResetOf(stream))) break;
  }
  EXPECT_TRUE(client.AwaitClosed());
  EXPECT_TRUE(AwaitMetric("castor_connections_expelled_total", 1));
  EXPECT_TRUE(AwaitNoCalls());
  ExpectAGoodAnswer();
}

// Callers that hedge or sometimes give up behave like this.
TEST_F(TransportTest, APeerThatCancelsHalfOfItsCallsIsServed) {
  StartServer(TestOptionsWithMetrics());
  const auto channel = NewChannel();
  const auto stub = v1::AttentionService::NewStub(channel);
  for (int i = 0; i < 1500; ++i) {
    AttendCall answered;
    ASSERT_TRUE(answered.Run(*stub, AttendOf(1)).ok()) << i;
    AttendCall cancelled;
    cancelled.context.TryCancel();
    EXPECT_EQ(cancelled.Run(*stub, AttendOf(1)).error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(Metric("castor_connections_expelled_total"), 0);
}

TEST_F(TransportTest, AMessageThatDoesNotArriveInTimeEndsItsCall) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.transfer_timeout = milliseconds(50);
  StartServer(options);
  RawClient client(server_->port());
  ASSERT_TRUE(client.SendPreface() && client.BeginCall(kAttendPath, "half", 1000));
  EXPECT_TRUE(AwaitMetric("castor_calls_overdue_total", 1));
  EXPECT_TRUE(AwaitNoCalls());
  ExpectAGoodAnswer();
}

TEST_F(TransportTest, AnAnswerThatIsNotTakenInTimeIsDropped) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.transfer_timeout = milliseconds(200);
  StartServer(options);
  RawClient client(server_->port());
  ASSERT_TRUE(client.SendPrefaceOfADeafPeer() &&
              client.Send(CallOf(1, AttendOf(2).SerializeAsString())));
  EXPECT_TRUE(AwaitMetric("castor_answers_lost_total{method=\"attend\"}", 1));
  EXPECT_EQ(Metric("castor_calls_overdue_total"), 1);
  EXPECT_TRUE(AwaitMetric("castor_inflight_calls{method=\"attend\"}", 0));
  EXPECT_EQ(Metric("castor_message_bytes{direction=\"out\"}"), 0);
  ExpectAGoodAnswer();
}

TEST_F(TransportTest, MemoryOfAnswersInTransitIsMeasured) {
  StartServer(TestOptionsWithMetrics());
  RawClient deaf(server_->port());
  ASSERT_TRUE(deaf.SendPrefaceOfADeafPeer() &&
              deaf.Send(CallOf(1, AttendOf(2).SerializeAsString())));
  ASSERT_TRUE(
      AwaitMetric("castor_requests_total{code=\"OK\",kernel=\"vanilla\",method=\"attend\"}", 1));
  EXPECT_GT(Metric("castor_message_bytes{direction=\"out\"}"), 0);
  deaf.Vanish();
  EXPECT_TRUE(AwaitMetric("castor_message_bytes{direction=\"out\"}", 0));
}

TEST_F(TransportTest, AClientThatGoesAwayAmidItsMessageCountsAsCancelled) {
  StartServer(TestOptionsWithMetrics());
  {
    RawClient client(server_->port());
    ASSERT_TRUE(client.SendPreface() && client.BeginCall(kAttendPath, "half", 1000));
    ASSERT_TRUE(AwaitMetric("castor_inflight_calls{method=\"attend\"}", 1));
    client.Vanish();
  }
  EXPECT_TRUE(AwaitMetric(
      "castor_requests_total{code=\"CANCELLED\",kernel=\"none\",method=\"attend\"}", 1));
  EXPECT_EQ(
      Metric("castor_requests_total{code=\"INVALID_ARGUMENT\",kernel=\"none\",method=\"attend\"}"),
      0);
}

TEST_F(TransportTest, ACallWithoutAMessageIsInvalid) {
  StartServer(TestOptionsWithMetrics());
  RawClient client(server_->port());
  ASSERT_TRUE(client.SendPreface() &&
              client.Send(RawClient::HeadersOf(1, kAttendPath) + RawClient::DataOf(1, "", true)));
  EXPECT_TRUE(AwaitMetric(
      "castor_requests_total{code=\"INVALID_ARGUMENT\",kernel=\"none\",method=\"attend\"}", 1));
}

// Some clients send this for "no deadline". It is the largest timeout that the wire format allows.
TEST_F(TransportTest, TheLargestTimeoutIsTheServersOwn) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.max_deadline = seconds(60);
  StartServer(options);
  int64_t calls = 0;
  for (const char* timeout : {"99999999H", "99999999M", "99999999S"}) {
    RawClient client(server_->port());
    const std::string message = AttendOf(2).SerializeAsString();
    ASSERT_TRUE(
        client.SendPreface() &&
        client.Send(RawClient::HeadersOf(1, kAttendPath, {"grpc-timeout", timeout}) +
                    RawClient::MessageOf(1, message, static_cast<uint32_t>(message.size()))));
    EXPECT_TRUE(
        AwaitMetric("castor_requests_total{code=\"OK\",kernel=\"vanilla\",method=\"attend\"}",
                    static_cast<double>(++calls)))
        << timeout;
    const auto left = *engine_->last_call()->deadline - std::chrono::steady_clock::now();
    EXPECT_GT(left, seconds(30)) << timeout;
    EXPECT_LE(left, seconds(60)) << timeout;
  }
}

TEST_F(TransportTest, ConnectionsAreBoundedAndTheirPlacesAreGivenAgain) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.max_connections = 2;
  options.max_connections_per_host = 2;
  options.max_new_connections = 2;
  StartServer(options);
  auto first = std::make_unique<RawClient>(server_->port());
  auto second = std::make_unique<RawClient>(server_->port());
  ASSERT_TRUE(first->SendPreface() && first->AwaitGreeting());
  ASSERT_TRUE(second->SendPreface() && second->AwaitGreeting());
  EXPECT_EQ(Metric("castor_connections"), 2);
  RawClient third(server_->port());
  EXPECT_TRUE(third.AwaitClosed());
  EXPECT_EQ(Metric("castor_connections_refused_total{cause=\"total\"}"), 1);
  first.reset();
  ASSERT_TRUE(AwaitMetric("castor_connections", 1));
  ExpectAGoodAnswer();
}

TEST_F(TransportTest, OneHostDoesNotTakeEveryConnection) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.max_connections = 4;
  options.max_new_connections = 4;
  StartServer(options);  // one host may have three quarters
  RawClient first(server_->port());
  RawClient second(server_->port());
  RawClient third(server_->port());
  ASSERT_TRUE(AwaitMetric("castor_connections", 3));
  RawClient fourth(server_->port());
  EXPECT_TRUE(fourth.AwaitClosed());
  EXPECT_EQ(Metric("castor_connections_refused_total{cause=\"host\"}"), 1);
}

TEST_F(TransportTest, HealthIsAnsweredWhenWorkHasNoRoom) {
  server::ServerOptions options = TestOptions();
  options.max_calls = 8;
  StartServer(options);
  engine_->Hold();
  RawClient client(server_->port());
  ASSERT_TRUE(client.SendPreface());
  const std::string message = AttendOf(2).SerializeAsString();
  for (uint32_t call = 0; call < 6; ++call) ASSERT_TRUE(client.Send(CallOf(2 * call + 1, message)));
  ASSERT_TRUE(engine_->AwaitWaiting(6));
  EXPECT_TRUE(CallRaw("/grpc.health.v1.Health/Check", "").ok());
  EXPECT_EQ(CallRaw("/castor.v1.ServerService/GetServerInfo", "").error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  engine_->Release();
}

}  // namespace
}  // namespace castor::testing
