// Links over TLS, to servers in this process and to gRPC's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>

#include "client/file.h"
#include "client/load/base/errors.h"
#include "client/load/drive/links.h"
#include "client/load/http2/local_server.h"
#include "tests/support/secure_server.h"
#include "tests/support/temporary_folder.h"

namespace castor::load {
namespace {

using castor::testing::KeyPair;
using castor::testing::SecureServer;
using castor::testing::Subject;
using castor::testing::TestAuthority;
using client::TlsOptions;
using std::chrono::hours;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr seconds kPatience{60};  // a machine may stall

class LinksTlsTest : public ::testing::Test {
 protected:
  // Writes a file as programs do that rotate certificates: it is never there in part.
  std::string File(const std::string& name, const std::string& text) {
    EXPECT_TRUE(client::WriteFile(folder_ / "new", {text}).ok());
    EXPECT_EQ(std::rename((folder_ / "new").c_str(), (folder_ / name).c_str()), 0);
    return folder_ / name;
  }

  // A server's side with this certificate; it asks clients for one if `client_ca` is a file.
  SslContext Context(const KeyPair& pair, const std::string& client_ca = "",
                     bool no_tls13 = false) {
    return MakeServerContext({.certificate_file = File("server-cert", pair.certificate),
                              .key_file = File("server-key", pair.key),
                              .client_ca_file = client_ca,
                              .no_tls13 = no_tls13});
  }

  static UnaryCall Ask(const std::string& message) {
    UnaryCall call;
    call.path = "/grpc.health.v1.Health/Check";
    call.authority = "localhost";
    call.message = message;
    call.timeout = kPatience;
    return call;
  }

  static void Await(Links& links, size_t count) {
    const auto until = Clock::now() + kPatience;
    while (links.ended().size() < count) {
      ASSERT_LT(Clock::now(), until) << links.ended().size() << " of " << count;
      links.Flush();
      links.Wait(until);
    }
  }

  // One call, by a connection of its own.
  static grpc::Status Call(const std::string& target, const std::optional<TlsOptions>& tls) {
    UnaryCall call = Ask("");
    Links links({target}, 1, {.tls = tls});
    links.AwaitAll(kPatience);
    links.Start(call);
    Await(links, 1);
    return call.status;
  }

  // Why there can be no connection.
  static std::string Failure(const std::string& target, const std::optional<TlsOptions>& tls) {
    try {
      Links({target}, 1, {.tls = tls}).AwaitAll(kPatience);
    } catch (const ServerError& error) {
      EXPECT_THAT(error.what(), HasSubstr(target));
      return error.what();
    }
    return "none";
  }

  TemporaryFolder folder_;
  const TestAuthority authority_, other_{"another"};
  const std::string ca_ = File("ca", authority_.certificate());
  const KeyPair localhost_ = authority_.IssueForLocalhost();
};

TEST_F(LinksTlsTest, MessagesOfAnySizeComeAndGoWhole) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (const bool no_tls13 : {false, true}) {
    const SslContext context = Context(localhost_, "", no_tls13);
    const LocalServer server(
        [](ServerConnection& connection, int32_t stream, std::string_view, std::string_view body) {
          connection.SubmitMessage(stream, std::string(body));
        },
        {.keep_bodies = true, .tls = context.get()});
    Links links({server.target()}, 2, {.tls = TlsOptions{.ca_file = ca_}});
    links.AwaitAll(kPatience);
    // Records hold 16 KiB, and buffers 256.
    std::vector<std::string> messages;
    for (const size_t size : {0, 1, 16'383, 16'384, 16'385, 262'144, 300'000, 3'000'000}) {
      for (int i = 0; i < 3; ++i) {
        messages.emplace_back(size, '\0');
        for (char& c : messages.back()) c = static_cast<char>(random());
      }
    }
    std::vector<UnaryCall> calls;
    for (const std::string& message : messages) calls.push_back(Ask(message));
    for (UnaryCall& call : calls) links.Start(call);
    Await(links, calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(calls[i].status.ok()) << calls[i].status.error_message();
      EXPECT_EQ(calls[i].answer == messages[i], true) << messages[i].size() << " bytes";
    }
  }
}

TEST_F(LinksTlsTest, AGrpcServerAnswersToo) {
  const SecureServer server({.identity = localhost_, .client_authority = authority_.certificate()});
  const KeyPair me = authority_.Issue({.common_name = "me"});
  const TlsOptions tls = {.ca_file = ca_,
                          .certificate_file = File("cert", me.certificate),
                          .key_file = File("key", me.key)};
  EXPECT_TRUE(Call(server.target(), tls).ok());
  EXPECT_EQ(server.caller(), "me");
  EXPECT_TRUE(Call("localhost:" + std::to_string(server.port()), tls).ok()) << "by a name";
}

TEST_F(LinksTlsTest, AServersCertificateThatIsNotBelievedIsExplained) {
  SecureServer server({.identity = localhost_});
  const std::string other = File("other", other_.certificate());
  EXPECT_THAT(Failure(server.target(), TlsOptions{.ca_file = other}),
              AllOf(HasSubstr("not trusted"), HasSubstr("--ca")));
  EXPECT_THAT(Failure(server.target(), TlsOptions{}), HasSubstr("not trusted"));
  EXPECT_THAT(Failure(server.target(), TlsOptions{.ca_file = ca_, .server_name = "castor.example"}),
              AllOf(HasSubstr("not for castor.example"), HasSubstr("--server-name")));
  server.Restart({.identity = authority_.Issue({.dns = {"castor.example"}})});
  EXPECT_THAT(Failure(server.target(), TlsOptions{.ca_file = ca_}), HasSubstr("not for 127.0.0.1"));
  EXPECT_TRUE(
      Call(server.target(), TlsOptions{.ca_file = ca_, .server_name = "castor.example"}).ok());
  server.Restart({.identity = authority_.Issue(
                      {.ips = {"127.0.0.1"}, .begins = -hours(2), .ends = -hours(1)})});
  EXPECT_THAT(Failure(server.target(), TlsOptions{.ca_file = ca_}), HasSubstr("has expired"));
}

TEST_F(LinksTlsTest, AClientWhoseCertificateIsMissingOrWrongIsTold) {
  for (const bool no_tls13 : {false, true}) {
    const SslContext context = Context(localhost_, ca_, no_tls13);
    const LocalServer server(LocalServer::Echo, {.tls = context.get()});
    EXPECT_THAT(Failure(server.target(), TlsOptions{.ca_file = ca_}),
                HasSubstr("asks for a client's certificate"));
    const KeyPair stranger = other_.Issue({.common_name = "stranger"});
    const TlsOptions tls = {.ca_file = ca_,
                            .certificate_file = File("cert", stranger.certificate),
                            .key_file = File("key", stranger.key)};
    EXPECT_THAT(Failure(server.target(), tls), HasSubstr("does not accept"));
  }
  const SecureServer grpc({.identity = localhost_, .client_authority = authority_.certificate()});
  EXPECT_THAT(Failure(grpc.target(), TlsOptions{.ca_file = ca_}),
              HasSubstr("asks for a client's certificate"));
}

TEST_F(LinksTlsTest, PlaintextAndTlsDoNotMeet) {
  const LocalServer plain(LocalServer::Echo);
  EXPECT_THAT(Failure(plain.target(), TlsOptions{.ca_file = ca_}), HasSubstr("speaks no TLS"));
  const SecureServer plain_grpc({});
  EXPECT_THAT(Failure(plain_grpc.target(), TlsOptions{.ca_file = ca_}), HasSubstr("speaks no TLS"));
  // The other way round a later try might succeed: there is no waiting for its end here.
  for (const bool grpc : {false, true}) {
    const SecureServer secure_grpc({.identity = localhost_});
    const SslContext context = Context(localhost_);
    const LocalServer secure(LocalServer::Echo, {.tls = context.get()});
    UnaryCall call = Ask("");
    Links links({grpc ? secure_grpc.target() : secure.target()}, 1);
    const auto until = Clock::now() + kPatience;
    while (call.status.ok() && Clock::now() < until) {
      call.Reset();
      links.Start(call);
      Await(links, 1);
      links.ended().clear();
    }
    EXPECT_EQ(call.status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(call.status.error_message(), AnyOf(HasSubstr("--tls"), HasSubstr("reset by peer")));
  }
}

TEST_F(LinksTlsTest, BadFilesAreNamed) {
  const LocalServer server(LocalServer::Echo);
  EXPECT_THAT(Failure(server.target(), TlsOptions{.ca_file = folder_ / "missing"}),
              HasSubstr("missing"));
  EXPECT_THAT(Failure(server.target(), TlsOptions{.ca_file = File("empty", "")}),
              HasSubstr("no certificate"));
}

TEST_F(LinksTlsTest, NewConnectionsUseTheFilesOfToday) {
  std::mutex mu;
  std::string caller;
  const auto note = [&](ServerConnection& connection, int32_t stream, std::string_view,
                        std::string_view) {
    {
      const std::lock_guard<std::mutex> lock(mu);
      caller = connection.peer();
    }
    connection.SubmitLeave();
    LocalServer::Echo(connection, stream, "", "");
  };
  const KeyPair one = authority_.Issue({.common_name = "one"}),
                two = authority_.Issue({.common_name = "two"});
  const TlsOptions tls = {.ca_file = ca_,
                          .certificate_file = File("cert", one.certificate),
                          .key_file = File("key", one.key)};
  const SslContext first = Context(localhost_, File("clients", authority_.certificate()));
  auto server = std::make_unique<LocalServer>(note, ServerLimits{.tls = first.get()});
  const std::string target = server->target();
  Links links({target}, 1, {.tls = tls});
  links.AwaitAll(kPatience);
  const auto call = [&] {
    UnaryCall made = Ask("");
    links.Start(made);
    Await(links, 1);
    links.ended().clear();
    const std::lock_guard<std::mutex> lock(mu);
    return made.status.ok() ? caller : made.status.error_message();
  };
  EXPECT_EQ(call(), "one");

  // The certificate is new, and its key is not there yet: the last pair still serves. A second
  // server takes the place of the first, to make for a new connection.
  File("cert", two.certificate);
  server.reset();
  server = std::make_unique<LocalServer>(note, ServerLimits{.tls = first.get()}, target);
  const auto until = Clock::now() + kPatience;
  std::string by;
  for (by = call(); by != "one" && Clock::now() < until; by = call()) links.Wait(Clock::now());
  EXPECT_EQ(by, "one");

  // Now the pair is whole, and the server has another authority.
  File("key", two.key);
  File("ca", other_.certificate());
  const SslContext second = Context(other_.IssueForLocalhost(), folder_ / "clients");
  server.reset();
  server = std::make_unique<LocalServer>(note, ServerLimits{.tls = second.get()}, target);
  for (by = call(); by != "two" && Clock::now() < until; by = call()) links.Wait(Clock::now());
  EXPECT_EQ(by, "two");
}

}  // namespace
}  // namespace castor::load
