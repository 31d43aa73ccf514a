// A command of the client (CASTOR_PROGRAM), run by a shell against one real castor-server that all
// tests of a program share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/client/program.h"
#include "tests/integration/process/server_process.h"

namespace castor::cli {

using testing::ReadFile;
using testing::WriteFile;
using Outcome = testing::Ended;

// Whether the model that setup.sh fetches is present.
bool HaveModel();

// The server runs with --shared-memory, messages of at most 8 MiB, and MiniLM if it is present.
class CliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  // Runs the command with `input` as its standard input. The shell `redirections` are added.
  static Outcome Run(const std::vector<std::string>& arguments, const std::string& input = "",
                     const std::string& server = address_, const std::string& redirections = "");

  // The output of a run that must succeed.
  static std::string OutputOf(const std::vector<std::string>& arguments,
                              const std::string& input = "");

  // The message of a run that must end with this exit code and one line on standard error.
  static std::string ErrorOf(int exit_code, const std::vector<std::string>& arguments,
                             const std::string& input = "", const std::string& redirections = "");

  // The path of a file in this test's own folder.
  static std::string InFolder(const std::string& name) { return folder_ + "/" + name; }

  static std::unique_ptr<testing::ServerProcess> server_;
  static std::string address_, metrics_address_;
  static std::string folder_;
};

}  // namespace castor::cli
