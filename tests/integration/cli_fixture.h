// The castor command run by a shell against one real castor-server for all tests of a program.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/server_process.h"

namespace castor::cli {

struct Outcome {
  int exit_code = -1;  // 128 + n where signal n ended it
  std::string out;
  std::string err;
};

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

// Whether the model that setup.sh fetches is there.
bool HaveModel();

// The server has --shared-memory, messages of 8 MiB, and MiniLM where it is there.
class CliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  // Runs castor; `input` is its standard input. The shell's `redirections` come on top.
  static Outcome Run(const std::vector<std::string>& arguments, const std::string& input = "",
                     const std::string& server = address_, const std::string& redirections = "");

  // The output of a run that must be OK.
  static std::string OutputOf(const std::vector<std::string>& arguments,
                              const std::string& input = "");

  // The message of a run that must end in this code with one line on standard error.
  static std::string ErrorOf(int exit_code, const std::vector<std::string>& arguments,
                             const std::string& input = "", const std::string& redirections = "");

  // The path of a file in a folder of the test's own.
  static std::string InFolder(const std::string& name) { return folder_ + "/" + name; }

  static std::unique_ptr<testing::ServerProcess> server_;
  static std::string address_;
  static std::string folder_;
};

}  // namespace castor::cli
