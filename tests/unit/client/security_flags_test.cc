#include "client/cli/security_flags.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "client/cli/command.h"
#include "tests/support/secure_server.h"

namespace castor::cli {
namespace {

class SecurityFlagsTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("CASTOR_TOKEN"); }
  void TearDown() override { unsetenv("CASTOR_TOKEN"); }

  static SecurityFlags Parse(std::vector<std::string> arguments) {
    CLI::App app;
    SecurityFlags flags;
    AddSecurityFlags(&app, &flags, "group");
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
    return flags;
  }
  static client::ClientOptions Options(const std::vector<std::string>& arguments) {
    client::ClientOptions options;
    Parse(arguments).ApplyTo(&options);
    return options;
  }
};

TEST_F(SecurityFlagsTest, AnyFileOrNameImpliesTls) {
  EXPECT_FALSE(Options({}).tls.has_value());
  EXPECT_TRUE(Options({"--tls"}).tls.has_value());
  EXPECT_EQ(Options({"--ca", "a"}).tls->ca_file, "a");
  EXPECT_EQ(Options({"--server-name", "n"}).tls->server_name, "n");
  EXPECT_EQ(Options({"--cert", "c", "--cert-key", "k"}).tls->key_file, "k");
  EXPECT_THROW(Options({"--cert", "c"}), UsageError);
  EXPECT_THROW(Options({"--cert-key", "k"}), UsageError);
  EXPECT_FALSE(Options({"--token-file", "t"}).tls.has_value());
}

TEST_F(SecurityFlagsTest, ATokenFileCountsBeforeTheEnvironment) {
  setenv("CASTOR_TOKEN", "secret", 1);
  EXPECT_EQ(Options({}).token, "secret");
  EXPECT_EQ(Options({"--token-file", "t"}).token, "");
  EXPECT_EQ(Options({"--token-file", "t"}).token_file, "t");
}

// A name has several addresses, and gRPC reports only the last failure: that nothing listens at
// [::1].
TEST_F(SecurityFlagsTest, TheReasonIsFoundBehindALocalName) {
  const testing::TestAuthority authority;
  const testing::SecureServer server({.identity = authority.IssueForLocalhost()});
  const std::string port = std::to_string(server.port());
  const std::string refused =
      "failed to connect to all addresses; last error: UNKNOWN: ipv6:[::1]:" + port +
      ": Failed to connect to remote host: Connection refused";
  client::ClientOptions options{.target = "localhost:" + port};
  EXPECT_EQ(HandshakeHint(refused, options), "does the server use TLS? Try --tls");
  options.tls.emplace();
  EXPECT_NE(HandshakeHint(refused, options).find("see --ca"), std::string::npos);
  options.target = "127.0.0.1:" + port;
  EXPECT_EQ(HandshakeHint(refused, options), "");
}

}  // namespace
}  // namespace castor::cli
