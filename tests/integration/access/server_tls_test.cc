// TLS and mutual TLS over real sockets: who gets in, who does not and is told why, and hellos that
// come slowly, late or never.

#include <openssl/ssl.h>

#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/access/secure_fixture.h"
#include "tests/integration/observed/health_client.h"
#include "tests/integration/raw_client.h"

namespace castor::testing {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using namespace std::string_view_literals;

class ServerTlsTest : public SecureServerTest {
 protected:
  void ExpectServed() {
    const grpc::Status status = Attend(Dial());
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  KeyPair Client(const Subject& subject) const { return authority_.Issue(subject); }
};

// Kubelet's probes speak no TLS.
TEST_F(ServerTlsTest, TheHealthPortSpeaksPlaintext) {
  server::ServerOptions options = WithMutualTls();
  options.health_listen = "127.0.0.1:0";
  StartSecure(options);
  EXPECT_EQ(CheckHealth(NewChannelTo(server_->health_port()), "readiness"),
            grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST_F(ServerTlsTest, AClientThatTrustsSomebodyElseOrWantsAnotherNameGoesAway) {
  StartSecure(WithTls());
  const grpc::Status stranger = Attend(Dial({.authority = other_.certificate()}));
  EXPECT_EQ(stranger.error_code(), grpc::StatusCode::UNAVAILABLE);
  const grpc::Status misled = Attend(Dial({.name = "castor.example"}));
  EXPECT_EQ(misled.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(misled.error_message().find("castor.example"), std::string::npos)
      << misled.error_message();
  EXPECT_EQ(Enter({.authority = other_.certificate()}), "certificate verify failed");
  EXPECT_EQ(engine_->admitted(), 0);
  ExpectServed();
}

TEST_F(ServerTlsTest, MutualTlsLetsInWhoHasACertificateOfItsAuthority) {
  StartSecure(WithMutualTls());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient::Options options = Trusting();
    options.oldest = options.newest = version;
    options.identity = Client({.common_name = "me"});
    EXPECT_EQ(Enter(options), "");
  }
  const grpc::Status status = Attend(Dial({.identity = Client({.common_name = "me"})}));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// gRPC closes the connection and sends no alert. Clients of TLS 1.3 learn it after they have
// finished their side of the handshake.
TEST_F(ServerTlsTest, MutualTlsLetsInNobodyElse) {
  StartSecure(WithMutualTls());
  const std::optional<KeyPair> strangers[] = {
      std::nullopt,
      other_.Issue({.common_name = "me"}),
      Client({.common_name = "me", .begins = -hours(2), .ends = -hours(1)}),
      Client({.common_name = "me", .begins = hours(1), .ends = hours(2)}),
  };
  for (size_t i = 0; i < std::size(strangers); ++i) {
    SCOPED_TRACE(i);
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      TlsClient::Options options = Trusting();
      options.oldest = options.newest = version;
      options.identity = strangers[i];
      EXPECT_EQ(Enter(options), "closed");
    }
    const grpc::Status status = Attend(Dial({.identity = strangers[i]}));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_EQ(engine_->admitted(), 0);
  EXPECT_TRUE(AwaitMetric("castor_connections", 0));
}

TEST_F(ServerTlsTest, PlaintextIsTurnedAwayAndCounted) {
  StartSecure(WithTls());
  EXPECT_EQ(Attend(NewChannel()).error_code(), grpc::StatusCode::UNAVAILABLE);
  for (const std::string_view words : {
           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"sv,
           "GET / HTTP/1.1\r\n\r\n"sv,
           "\x16\x02\x01\0\1z"sv,
           "\x15\x03\x01\0\2\2\0"sv,
       }) {
    RawClient client(server_->port());
    EXPECT_TRUE(client.Send(words));
    EXPECT_TRUE(client.AwaitClosed());
  }
  EXPECT_TRUE(Await([&] { return Refused("no_call") >= 5; }));
  ExpectServed();
  EXPECT_TRUE(AwaitMetric("castor_connections", 0));
}

TEST_F(ServerTlsTest, TlsToAPlaintextPortFailsAndHarmsNobody) {
  StartSecure(Watching());
  EXPECT_NE(Enter(Trusting()), "");
  EXPECT_TRUE(Attend(Dial()).ok());
}

TEST_F(ServerTlsTest, AHelloMayComeByteByByte) {
  StartSecure(WithTls());
  TlsClient client(server_->port(), Trusting());
  for (const char byte : client.TakeHello()) ASSERT_TRUE(client.Send({&byte, 1}));
  EXPECT_EQ(client.Enter(), "");
}

// Half a hello is left unread, so the socket stays readable whatever becomes of it.
TEST_F(ServerTlsTest, HalfAHelloAndSilenceAreClosedInTimeAndCounted) {
  constexpr int kClients = 20;
  server::ServerOptions options = WithTls();
  options.handshake_timeout = milliseconds(100);
  StartSecure(options);
  const int descriptors = OpenDescriptors();
  {
    std::vector<std::unique_ptr<TlsClient>> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(std::make_unique<TlsClient>(server_->port(), Trusting()));
      const std::string hello = clients.back()->TakeHello();
      if (i % 4 != 0) clients.back()->Send(hello.substr(0, hello.size() / 2));
    }
    for (const auto& client : clients) EXPECT_TRUE(client->AwaitClosed());
  }
  EXPECT_TRUE(AwaitMetric("castor_connections_refused_total{cause=\"no_call\"}", kClients * 3 / 4));
  EXPECT_TRUE(AwaitMetric("castor_connections", 0));
  EXPECT_TRUE(Await([&] { return OpenDescriptors() < descriptors + kClients / 2; }))
      << OpenDescriptors() << ", before " << descriptors;
}

TEST_F(ServerTlsTest, WhoHangsUpInTheMiddleOfAHelloLeavesNothingBehind) {
  server::ServerOptions options = WithTls();
  options.handshake_timeout = hours(1);
  StartSecure(options);
  ExpectServed();
  ASSERT_TRUE(AwaitMetric("castor_connections", 0));
  const int descriptors = OpenDescriptors();
  for (const bool abruptly : {false, true}) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.Send(std::string_view("\x16\x03\x01\x01\x00half", 9)));
    ASSERT_TRUE(AwaitMetric("castor_connections", 1));
    if (abruptly) client.Vanish();
  }
  EXPECT_TRUE(AwaitMetric("castor_connections", 0));
  EXPECT_TRUE(Await([&] { return OpenDescriptors() <= descriptors; }))
      << OpenDescriptors() << ", before " << descriptors;
  ExpectServed();
}

}  // namespace
}  // namespace castor::testing
