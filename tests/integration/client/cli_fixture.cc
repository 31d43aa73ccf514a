#include "tests/integration/client/cli_fixture.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "tests/support/sanitizer.h"

namespace castor::cli {
bool HaveModel() { return std::filesystem::exists(CASTOR_TEST_MODEL "/config.json"); }

std::unique_ptr<testing::ServerProcess> CliTest::server_;
std::string CliTest::address_;
std::string CliTest::metrics_address_;
std::string CliTest::folder_;

void CliTest::SetUpTestSuite() {
  std::vector<std::string> arguments = {
      "--listen",       "127.0.0.1:0", "--metrics-listen",    "127.0.0.1:0",
      "--device",       "cpu",         "--max-message-bytes", "8MiB",
      "--shared-memory"};
  // The default is too short under a sanitizer.
  if (kSanitized) arguments.insert(arguments.end(), {"--cost-model-budget", "10s"});
  if (HaveModel()) arguments.insert(arguments.end(), {"--model", "minilm=" CASTOR_TEST_MODEL});
  server_ = std::make_unique<testing::ServerProcess>(arguments);
  const std::string line = server_->AwaitLine("listening grpc=");
  ASSERT_NE(line, "") << server_->output();
  const auto value_of = [&line](const std::string& name) {
    const size_t begin = line.find(name) + name.size();
    return line.substr(begin, line.find_first_of(" \n", begin) - begin);
  };
  address_ = value_of("grpc=");
  metrics_address_ = value_of("metrics=");
  std::string pattern = ::testing::TempDir() + "castor-cli-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

void CliTest::TearDownTestSuite() {
  if (server_ != nullptr) {
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
  }
  server_.reset();
  std::filesystem::remove_all(folder_);
}

Outcome CliTest::Run(const std::vector<std::string>& arguments, const std::string& input,
                     const std::string& server, const std::string& redirections) {
  return testing::RunProgram(CASTOR_PROGRAM, arguments, {{"CASTOR_SERVER", server}}, folder_, input,
                             redirections);
}

std::string CliTest::OutputOf(const std::vector<std::string>& arguments, const std::string& input) {
  const Outcome outcome = Run(arguments, input);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

std::string CliTest::ErrorOf(int exit_code, const std::vector<std::string>& arguments,
                             const std::string& input, const std::string& redirections) {
  return testing::OneError(Run(arguments, input, address_, redirections), exit_code);
}

}  // namespace castor::cli
