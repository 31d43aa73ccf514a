// The client against gRPC servers on TLS, with certificates made here.

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "client/client.h"
#include "client/credentials.h"
#include "tests/support/secure_server.h"
#include "tests/support/tls_test.h"

namespace castor::client {
namespace {

using castor::testing::KeyPair;
using castor::testing::SecureServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ClientTlsTest : public castor::testing::TlsTest {
 protected:
  // Tries once, with a deadline longer than any stall of the machine.
  ClientOptions Options(const SecureServer& server, std::optional<TlsOptions> tls) const {
    ClientOptions options{.target = server.target()};
    options.retry.max_attempts = 1;
    options.tls = std::move(tls);
    return options;
  }

  Error ErrorOf(const SecureServer& server, std::optional<TlsOptions> tls) const {
    Client client(Options(server, std::move(tls)));
    const auto answer = client.Health();
    EXPECT_FALSE(answer.ok());
    return answer.ok() ? Error() : answer.error();
  }

  KeyPair Issue(const std::string& name) const { return authority_.Issue({.common_name = name}); }
};

TEST_F(ClientTlsTest, CallsATrustedServer) {
  SecureServer server({.identity = authority_.IssueForLocalhost()});
  Client client(Options(server, TlsOptions{.ca_file = ca_}));
  const auto answer = client.Health();
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_EQ(server.authorization(), "");
}

TEST_F(ClientTlsTest, RefusesAnUntrustedServer) {
  SecureServer server({.identity = other_.IssueForLocalhost()});
  for (const TlsOptions& tls : {TlsOptions{.ca_file = ca_}, TlsOptions{}}) {
    const Error error = ErrorOf(server, tls);
    EXPECT_EQ(error.code, grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(error.message, HasSubstr("certificate verify failed"));
  }
}

TEST_F(ClientTlsTest, TheCertificateMustSayTheServersName) {
  SecureServer server({.identity = authority_.Issue({.dns = {"castor.example"}})});
  EXPECT_EQ(ErrorOf(server, TlsOptions{.ca_file = ca_}).code, grpc::StatusCode::UNAVAILABLE);
  // With files that gRPC watches, and without.
  Client client(Options(server, TlsOptions{.ca_file = ca_, .server_name = "castor.example"}));
  EXPECT_TRUE(client.Health().ok());
  EXPECT_EQ(ErrorOf(server, TlsOptions{.ca_file = ca_, .server_name = "other.example"}).code,
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ClientTlsTest, ABadFileIsTheErrorOfCallsUntilItIsGood) {
  SecureServer server({.identity = authority_.IssueForLocalhost()});
  ClientOptions options = Options(server, TlsOptions{.ca_file = folder_ / "late"});
  options.retry.max_attempts = 1000;  // gRPC may take a second to see the file
  Client client(options);
  const auto answer = client.Health();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(answer.error().attempts, 0);
  EXPECT_THAT(answer.error().message, HasSubstr("late"));
  File("late", authority_.certificate());
  EXPECT_TRUE(client.Health().ok());
}

TEST_F(ClientTlsTest, NewConnectionsUseTheCertificateAndAuthoritiesOfToday) {
  const SecureServer::Options first = {.identity = authority_.IssueForLocalhost(),
                                       .client_authority = authority_.certificate()};
  const SecureServer::Options second = {.identity = other_.IssueForLocalhost(),
                                        .client_authority = authority_.certificate()};
  SecureServer server(first);
  const KeyPair one = Issue("one"), two = Issue("two");
  ClientOptions options =
      Options(server, TlsOptions{.ca_file = ca_,
                                 .certificate_file = File("cert", one.certificate),
                                 .key_file = File("key", one.key)});
  options.retry.max_attempts = 1000;  // until gRPC has seen the files
  Client client(options);
  ASSERT_TRUE(client.Health().ok());
  EXPECT_EQ(server.caller(), "one");
  File("cert", two.certificate);
  File("key", two.key);
  File("ca", other_.certificate());
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (server.caller() != "two" && std::chrono::steady_clock::now() < until) {
    server.Restart(second);  // which ends the connection
    (void)client.Health();
  }
  EXPECT_EQ(server.caller(), "two");
}

TEST_F(ClientTlsTest, ATokenGoesWithEachCallAndMayChange) {
  SecureServer server({.identity = authority_.IssueForLocalhost()});
  server.RequireToken("first");
  ClientOptions options = Options(server, TlsOptions{.ca_file = ca_});
  options.token_file = File("token", "wrong\n");
  Client client(options);
  const auto refused = client.Health();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(refused.error().ToString(), Not(HasSubstr("wrong")));
  File("token", "first\n");
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!client.Health().ok() && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_TRUE(client.Health().ok());
  grpc::ClientContext context;
  EXPECT_TRUE(client.Authorize(context).ok());
  v1::ServerInfo info;
  EXPECT_TRUE(v1::ServerService::NewStub(client.channel())
                  ->GetServerInfo(&context, v1::GetServerInfoRequest(), &info)
                  .ok());
  v1::AttendRequest request;
  request.mutable_output()->set_region("region");
  EXPECT_TRUE(client.Attend(request).ok()) << "a call that waits for its connection first";
}

TEST(ClientTokenTest, DoesNotLeaveThisMachineOverPlaintext) {
  ClientOptions options{.target = "castor.invalid:1", .deadline = std::chrono::minutes(1)};
  options.retry.max_attempts = 1;
  options.token = "secret";
  Client careful(options);
  const auto answer = careful.Health();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().attempts, 0);
  EXPECT_THAT(answer.error().message,
              AllOf(HasSubstr("castor.invalid"), HasSubstr("plaintext"), Not(HasSubstr("secret"))));
  options.allow_plaintext_token = true;
  EXPECT_TRUE(CheckMaySendToken(options, options.target).ok());
  options.allow_plaintext_token = false;
  options.tls.emplace();
  EXPECT_TRUE(CheckMaySendToken(options, options.target).ok());

  SecureServer here({});
  here.RequireToken("secret");
  Client local({.target = here.target(), .token = "secret"});
  EXPECT_TRUE(local.Health().ok());
}

std::string Encrypted(const std::string& key) {
  BIO* const in = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
  BIO* const out = BIO_new(BIO_s_mem());
  EVP_PKEY* const read = PEM_read_bio_PrivateKey(in, nullptr, nullptr, nullptr);
  char password[] = "password";
  PEM_write_bio_PrivateKey(out, read, EVP_aes_128_cbc(), nullptr, 0, nullptr, password);
  char* text = nullptr;
  const long size = BIO_get_mem_data(out, &text);
  const std::string encrypted(text, static_cast<size_t>(size));
  EVP_PKEY_free(read);
  BIO_free(in);
  BIO_free(out);
  return encrypted;
}

class TlsFilesTest : public castor::testing::TlsTest {
 protected:
  // The error of options that cannot be used.
  static std::string Problem(const TlsOptions& options) {
    const absl::Status status = CheckTlsFiles(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(ERR_peek_error(), 0U) << "nothing is left for the thread's next call";
    return std::string(status.message());
  }

  const KeyPair one_ = authority_.IssueForLocalhost(), two_ = authority_.IssueForLocalhost();
};

TEST_F(TlsFilesTest, GoodFilesAreGood) {
  EXPECT_TRUE(CheckTlsFiles({}).ok()) << "the system's authorities";
  const std::string ca = File("ca", "a comment\n" + authority_.certificate());
  EXPECT_TRUE(CheckTlsFiles({.ca_file = ca}).ok());
  EXPECT_TRUE(CheckTlsFiles({.ca_file = ca,
                             .certificate_file = File("cert", one_.certificate + ca),
                             .key_file = File("key", one_.key)})
                  .ok());
}

TEST_F(TlsFilesTest, ErrorsNameTheFile) {
  const std::string cert = File("cert", one_.certificate), key = File("key", one_.key);
  const std::string empty = File("empty", ""), missing = folder_ / "missing";
  EXPECT_THAT(Problem({.ca_file = missing}), AllOf(HasSubstr(missing), HasSubstr("No such file")));
  EXPECT_THAT(Problem({.ca_file = folder_.path()}), HasSubstr("directory"));
  EXPECT_THAT(Problem({.ca_file = empty}),
              AllOf(HasSubstr(empty), HasSubstr("no PEM certificate")));
  EXPECT_THAT(Problem({.ca_file = key}), AllOf(HasSubstr(key), HasSubstr("no PEM certificate")));
  EXPECT_THAT(Problem({.certificate_file = cert}), AllOf(HasSubstr(cert), HasSubstr("key")));
  EXPECT_THAT(Problem({.key_file = key}), AllOf(HasSubstr(key), HasSubstr("certificate")));
  EXPECT_THAT(Problem({.certificate_file = missing, .key_file = key}), HasSubstr(missing));
  EXPECT_THAT(Problem({.certificate_file = cert, .key_file = missing}), HasSubstr(missing));
  EXPECT_THAT(Problem({.certificate_file = cert, .key_file = cert}),
              HasSubstr("no PEM private key"));
  EXPECT_THAT(Problem({.certificate_file = cert, .key_file = File("locked", Encrypted(one_.key))}),
              AllOf(HasSubstr("locked"), HasSubstr("encrypted")));
  const std::string other = File("other", two_.key);
  EXPECT_THAT(Problem({.certificate_file = cert, .key_file = other}),
              AllOf(HasSubstr(other), HasSubstr(cert), HasSubstr("does not belong")));
}

}  // namespace
}  // namespace castor::client
