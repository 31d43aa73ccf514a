// The castor-load command against servers on TLS that ask for a token. What the machine's speed
// decides is not judged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/file.h"
#include "client/load/commands/session.h"
#include "client/load/workload/parse.h"
#include "tests/integration/program.h"
#include "tests/support/secure_server.h"
#include "tests/support/temporary_folder.h"

namespace castor::load {
namespace {

using castor::testing::Ended;
using castor::testing::KeyPair;
using castor::testing::RunProgram;
using castor::testing::SecureServer;
using castor::testing::TestAuthority;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int kMet = 0, kServer = 1, kUsage = 2, kInvalid = 4;

using Variables = std::vector<std::pair<std::string, std::string>>;

class LoadTlsTest : public ::testing::Test {
 protected:
  void SetUp() override { server_.RequireToken("right"); }

  std::string File(const std::string& name, const std::string& text) {
    EXPECT_TRUE(client::WriteFile(folder_ / name, {text}).ok());
    return folder_ / name;
  }

  Ended Run(const std::vector<std::string>& flags, Variables variables = {}) const {
    std::vector<std::string> arguments = {"run",         "--attend",
                                          "4",           "--heads",
                                          "1",           "--head-dim",
                                          "4",           "-r",
                                          "100",         "-d",
                                          "300ms",       "-q",
                                          "--warm-up",   "0s",
                                          "-s",          server_.target(),
                                          "--json",      folder_ / "run.json",
                                          "--no-metrics"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunProgram(CASTOR_PROGRAM, arguments, variables, folder_.path());
  }

  // How many requests of a run that must be measured were answered.
  int64_t Answered(const std::vector<std::string>& flags, Variables variables = {}) const {
    const Ended ended = Run(flags, std::move(variables));
    EXPECT_THAT(ended.exit_code, AnyOf(kMet, kInvalid)) << ended.out << ended.err;
    auto file = client::InputFile::Open(folder_ / "run.json");
    std::string text;
    if (!file.ok() || !file->Append(10 << 20, &text).ok()) return -1;
    EXPECT_THAT(text, Not(HasSubstr("right")));
    const Json run = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    return run["summary"]["total"]["outcomes"]["ok"];
  }

  std::string ErrorOf(int exit_code, const std::vector<std::string>& flags,
                      Variables variables = {}) const {
    const Ended ended = Run(flags, std::move(variables));
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    return ended.err;
  }

  TemporaryFolder folder_;
  const TestAuthority authority_, other_{"another"};
  const std::string ca_ = File("ca", authority_.certificate());
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

TEST_F(LoadTlsTest, WorkersOnThisMachineDoTheSame) {
  EXPECT_GT(Answered({"--workers", "2", "--ca", ca_, "--cert", cert_, "--cert-key", key_,
                      "--token-file", token_}),
            0);
  EXPECT_GT(Answered({"--workers", "2"}, {{"CASTOR_CA", ca_},
                                          {"CASTOR_CERT", cert_},
                                          {"CASTOR_KEY", key_},
                                          {"CASTOR_TOKEN", "right"}}),
            0);
}

// What a worker elsewhere is sent, and what it needs of its own.
TEST_F(LoadTlsTest, ARemoteWorkerHasItsOwnFilesAndToken) {
  ClassSpec spec;
  spec.name = "attend";
  spec.call = AttendSpec{.lengths = FixedLength{4}, .heads = 1, .head_dim = 4};
  Workload workload;
  workload.classes = {spec};
  workload.load = ClosedLoop{.callers = 1};
  const Job job = {.workload_toml = ToToml(workload),
                   .endpoints = {server_.target()},
                   .flags = {{"lanes", "1"}, {"connections", "1"}, {"tls", "1"}, {"token", "1"}}};
  cli::SecurityFlags security;
  const auto problem = [&] {
    try {
      (void)PrepareOnWorker(job, security);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(problem(), HasSubstr("start this worker with --token-file"));
  security.token_file = token_;
  EXPECT_THAT(problem(), HasSubstr("not trusted")) << "the run is over TLS, as the worker was told";
  security.files = {.ca_file = ca_, .certificate_file = cert_, .key_file = key_};
  EXPECT_EQ(problem(), "");
  EXPECT_EQ(server_.caller(), "me");
}

TEST_F(LoadTlsTest, AWorkloadsTokenDoesNotTravelInTheOpen) {
  const std::string workload = File("workload.toml", R"([[class]]
name = "guarded"
kind = "attend"
token = "right"
)");
  const auto run = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"run", "-q", "--workload", workload};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunProgram(CASTOR_PROGRAM, arguments, {}, folder_.path());
  };
  const Ended by_worker = run({"--worker", "castor.invalid:1"});
  EXPECT_EQ(by_worker.exit_code, kUsage);
  EXPECT_THAT(by_worker.err, AllOf(HasSubstr("castor.invalid:1"), Not(HasSubstr("right"))));
  const Ended by_itself = run({"-s", "castor.invalid:1"});
  EXPECT_EQ(by_itself.exit_code, kUsage);
  EXPECT_THAT(by_itself.err, AllOf(HasSubstr("castor.invalid:1"), Not(HasSubstr("right"))));
}

TEST_F(LoadTlsTest, ErrorsSayWhatIsWrong) {
  const Variables token = {{"CASTOR_TOKEN", "right"}};
  EXPECT_THAT(ErrorOf(kServer, {}, token), HasSubstr("--tls"));
  EXPECT_THAT(ErrorOf(kServer, {"--ca", File("other", other_.certificate())}, token),
              AllOf(HasSubstr(server_.target()), HasSubstr("not trusted")));
  EXPECT_THAT(ErrorOf(kServer, {"--ca", ca_}, token), HasSubstr("--cert"));
  EXPECT_THAT(ErrorOf(kUsage, {"--ca", folder_ / "missing"}, token), HasSubstr("missing"));
  EXPECT_THAT(ErrorOf(kUsage, {"--ca", ca_, "--token-file", folder_ / "missing"}),
              HasSubstr("missing"));
  const std::vector<std::string> secure = {"--ca", ca_, "--cert", cert_, "--cert-key", key_};
  EXPECT_THAT(ErrorOf(kServer, secure), HasSubstr("--token-file"));
  EXPECT_THAT(ErrorOf(kServer, secure, {{"CASTOR_TOKEN", "mistaken"}}),
              AllOf(HasSubstr("does not accept this token"), Not(HasSubstr("mistaken"))));
  EXPECT_THAT(ErrorOf(kUsage, {"-s", "castor.invalid:1"}, token), HasSubstr("plaintext"));
}

}  // namespace
}  // namespace castor::load
