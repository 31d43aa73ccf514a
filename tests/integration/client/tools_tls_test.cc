// The castor and castor-load commands against servers on TLS and servers that ask for a token. The
// tests do not judge the machine's speed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/integration/client/program.h"
#include "tests/support/secure_server.h"
#include "tests/support/tls_test.h"
#include "tests/support/words.h"

namespace castor::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Variables = std::vector<std::pair<std::string, std::string>>;

// castor-load: its objectives are met, or its run is not long enough to say so.
constexpr int kOk = 0, kServer = 1, kUsage = 2, kInvalid = 4;

class CliTlsTest : public TlsTest {
 protected:
  Ended Health(const SecureServer& server, std::vector<std::string> flags,
               Variables variables = {}) const {
    flags.insert(flags.begin(), "health");
    variables.emplace_back("CASTOR_SERVER", server.target());
    return RunProgram(CASTOR_PROGRAM, flags, variables, folder_.path());
  }

  std::string ErrorOf(int exit_code, const SecureServer& server, std::vector<std::string> flags,
                      Variables variables = {}) const {
    return OneError(Health(server, std::move(flags), std::move(variables)), exit_code);
  }

  SecureServer::Options ForLocalhost() const {
    return {.identity = authority_.IssueForLocalhost()};
  }
};

TEST_F(CliTlsTest, FlagsAndEnvironmentLeadToASecureServer) {
  const SecureServer server(
      {.identity = authority_.IssueForLocalhost(), .client_authority = authority_.certificate()});
  const KeyPair me = authority_.Issue({.common_name = "me"});
  const std::string cert = File("cert", me.certificate), key = File("key", me.key);
  const Ended by_flags = Health(server, {"--ca", ca_, "--cert", cert, "--cert-key", key});
  EXPECT_EQ(by_flags.exit_code, kOk) << by_flags.err;
  EXPECT_EQ(by_flags.err, "");
  const Ended by_environment =
      Health(server, {}, {{"CASTOR_CA", ca_}, {"CASTOR_CERT", cert}, {"CASTOR_KEY", key}});
  EXPECT_EQ(by_environment.exit_code, kOk) << by_environment.err;
  EXPECT_EQ(server.caller(), "me");
  // This variable replaces the system's authorities.
  const Ended by_system =
      Health(server, {"--tls", "--cert", cert, "--cert-key", key}, {{"SSL_CERT_FILE", ca_}});
  EXPECT_EQ(by_system.exit_code, kOk) << by_system.err;
}

TEST_F(CliTlsTest, AFailedHandshakeIsExplained) {
  SecureServer server(ForLocalhost());
  EXPECT_THAT(ErrorOf(kServer, server, {}), HasSubstr("Try --tls"));
  EXPECT_THAT(ErrorOf(kServer, server, {"--tls"}), HasSubstr("the system's authorities"));
  const std::string other = File("other", other_.certificate());
  EXPECT_THAT(ErrorOf(kServer, server, {"--ca", other}),
              AllOf(HasSubstr(other), HasSubstr("--ca")));
  EXPECT_THAT(ErrorOf(kServer, server, {"--ca", ca_, "--server-name", "castor.example"}),
              HasSubstr("not for castor.example"));
  server.Restart({.identity = authority_.Issue({.dns = {"castor.example"}})});
  EXPECT_THAT(ErrorOf(kServer, server, {"--ca", ca_}), HasSubstr("set --server-name"));
  server.Restart(
      {.identity = authority_.IssueForLocalhost(), .client_authority = authority_.certificate()});
  EXPECT_THAT(ErrorOf(kServer, server, {"--ca", ca_}), HasSubstr("--cert"));
  server.Restart({});
  EXPECT_THAT(ErrorOf(kServer, server, {"--ca", ca_}), HasSubstr("leave out --tls"));
}

TEST_F(CliTlsTest, ABadFileIsNamed) {
  const SecureServer server(ForLocalhost());
  const std::string missing = folder_ / "missing";
  EXPECT_THAT(ErrorOf(kUsage, server, {"--ca", missing}), HasSubstr(missing));
  EXPECT_THAT(ErrorOf(kUsage, server, {"--token-file", missing, "--ca", ca_}), HasSubstr(missing));
  EXPECT_THAT(ErrorOf(kUsage, server, {"--cert", ca_}), HasSubstr("needs --cert-key"));
  EXPECT_THAT(ErrorOf(kUsage, server, {"--ca", File("empty", "")}),
              HasSubstr("no PEM certificate"));
}

TEST_F(CliTlsTest, ATokenComesFromAFileOrTheEnvironment) {
  SecureServer server(ForLocalhost());
  server.RequireToken("right");
  EXPECT_THAT(ErrorOf(kServer, server, {"--ca", ca_}), HasSubstr("--token-file"));
  const std::string file = File("token", "right\n");
  EXPECT_EQ(Health(server, {"--ca", ca_, "--token-file", file}).exit_code, kOk);
  EXPECT_EQ(Health(server, {"--ca", ca_}, {{"CASTOR_TOKEN_FILE", file}}).exit_code, kOk);
  EXPECT_EQ(Health(server, {"--ca", ca_}, {{"CASTOR_TOKEN", "right"}}).exit_code, kOk);
  EXPECT_THAT(ErrorOf(kServer, server, {"--ca", ca_}, {{"CASTOR_TOKEN", "mistaken"}}),
              AllOf(HasSubstr("does not accept this token"), Not(HasSubstr("mistaken"))));
  const Ended help = Health(server, {"--help"}, {{"CASTOR_TOKEN", "mistaken"}});
  EXPECT_THAT(help.out, AllOf(HasSubstr("CASTOR_TOKEN"), Not(HasSubstr("mistaken"))));
}

TEST_F(CliTlsTest, ATokenIsNotSentToAnotherMachineOverPlaintext) {
  const SecureServer server({});
  EXPECT_THAT(
      ErrorOf(kUsage, server, {"--server", "castor.invalid:1"}, {{"CASTOR_TOKEN", "right"}}),
      AllOf(HasSubstr("castor.invalid"), Not(HasSubstr("right"))));
  EXPECT_EQ(Health(server, {}, {{"CASTOR_TOKEN", "right"}}).exit_code, kOk) << "to this one it is";
  EXPECT_EQ(server.authorization(), "Bearer right");
}

class LoadTlsTest : public TlsTest {
 protected:
  void SetUp() override { server_.RequireToken("right"); }

  Ended Run(const std::vector<std::string>& flags, Variables variables = {}) const {
    std::vector<std::string> arguments =
        Words("run --attend 4 --heads 1 --head-dim 4 -r 100 -d 300ms -q --warm-up 0s --no-metrics");
    arguments.insert(arguments.end(), {"-s", server_.target(), "--json", folder_ / "run.json"});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunProgram(CASTOR_LOAD_PROGRAM, arguments, variables, folder_.path());
  }

  // The number of answered requests of a run, which must be saved.
  int64_t Answered(const std::vector<std::string>& flags, Variables variables = {}) const {
    const Ended ended = Run(flags, std::move(variables));
    EXPECT_THAT(ended.exit_code, AnyOf(kOk, kInvalid)) << ended.out << ended.err;
    const std::string text = ReadFile(folder_ / "run.json");
    EXPECT_THAT(text, Not(HasSubstr("right")));
    const Json run = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    return run["summary"]["total"]["outcomes"]["ok"];
  }

  std::string ErrorOf(int exit_code, const std::vector<std::string>& flags,
                      Variables variables = {}) const {
    return OneError(Run(flags, std::move(variables)), exit_code);
  }

  const KeyPair me_ = authority_.Issue({.common_name = "me"});
  const std::string cert_ = File("cert", me_.certificate), key_ = File("key", me_.key);
  const std::string token_ = File("token", "right\n");
  SecureServer server_{
      {.identity = authority_.IssueForLocalhost(), .client_authority = authority_.certificate()}};
};

TEST_F(LoadTlsTest, SendsOverTlsByFlagsAndByEnvironment) {
  EXPECT_GT(Answered({"--ca", ca_, "--cert", cert_, "--cert-key", key_, "--token-file", token_}),
            0);
  EXPECT_EQ(server_.caller(), "me");
  EXPECT_GT(Answered({}, {{"CASTOR_CA", ca_},
                          {"CASTOR_CERT", cert_},
                          {"CASTOR_KEY", key_},
                          {"CASTOR_TOKEN", "right"}}),
            0);
}

TEST_F(LoadTlsTest, AWorkloadsTokenDoesNotTravelInTheOpen) {
  const std::string workload = File("workload.toml", R"([[class]]
name = "guarded"
kind = "attend"
token-file = ")" + token_ + "\"\n");
  const auto run = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"run", "-q", "--workload", workload};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunProgram(CASTOR_LOAD_PROGRAM, arguments, {}, folder_.path());
  };
  const Ended by_itself = run({"-s", "castor.invalid:1"});
  EXPECT_EQ(by_itself.exit_code, kUsage);
  EXPECT_THAT(by_itself.err, AllOf(HasSubstr("castor.invalid:1"), Not(HasSubstr("right"))));
}

TEST_F(LoadTlsTest, ErrorsSayWhatIsWrong) {
  const Variables token = {{"CASTOR_TOKEN", "right"}};
  EXPECT_THAT(ErrorOf(kServer, {}, token), HasSubstr("--tls"));
  const std::vector<std::string> secure = {"--ca", ca_, "--cert", cert_, "--cert-key", key_};
  EXPECT_THAT(ErrorOf(kServer, secure), HasSubstr("--token-file"));
}

}  // namespace
}  // namespace castor::testing
