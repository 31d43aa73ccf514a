// The castor-load command against servers on TLS that ask for a token. The tests do not judge the
// machine's speed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/integration/client/program.h"
#include "tests/support/secure_server.h"
#include "tests/support/tls_test.h"
#include "tests/support/words.h"

namespace castor::load {
namespace {

using castor::testing::Ended;
using castor::testing::KeyPair;
using castor::testing::RunProgram;
using castor::testing::SecureServer;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int kMet = 0, kServer = 1, kUsage = 2, kInvalid = 4;

using Variables = std::vector<std::pair<std::string, std::string>>;

class LoadTlsTest : public castor::testing::TlsTest {
 protected:
  void SetUp() override { server_.RequireToken("right"); }

  Ended Run(const std::vector<std::string>& flags, Variables variables = {}) const {
    std::vector<std::string> arguments = castor::testing::Words(
        "run --attend 4 --heads 1 --head-dim 4 -r 100 -d 300ms -q --warm-up 0s --no-metrics");
    arguments.insert(arguments.end(), {"-s", server_.target(), "--json", folder_ / "run.json"});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunProgram(CASTOR_PROGRAM, arguments, variables, folder_.path());
  }

  // The number of answered requests of a run, which must be saved.
  int64_t Answered(const std::vector<std::string>& flags, Variables variables = {}) const {
    const Ended ended = Run(flags, std::move(variables));
    EXPECT_THAT(ended.exit_code, AnyOf(kMet, kInvalid)) << ended.out << ended.err;
    const std::string text = castor::testing::ReadFile(folder_ / "run.json");
    EXPECT_THAT(text, Not(HasSubstr("right")));
    const Json run = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    return run["summary"]["total"]["outcomes"]["ok"];
  }

  std::string ErrorOf(int exit_code, const std::vector<std::string>& flags,
                      Variables variables = {}) const {
    return castor::testing::OneError(Run(flags, std::move(variables)), exit_code);
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
    return RunProgram(CASTOR_PROGRAM, arguments, {}, folder_.path());
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
}  // namespace castor::load
