#include "tests/integration/client/program.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

namespace castor::testing {
namespace {

// Quotes `text` as one word of the shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Ended RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::pair<std::string, std::string>>& variables,
                 const std::string& folder, const std::string& input,
                 const std::string& redirections) {
  const std::string in = folder + "/in", out = folder + "/out", err = folder + "/err";
  WriteFile(in, input);
  std::string command = "env";
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view name = *variable;
    if (!name.starts_with("CASTOR_") && !name.starts_with("SSL_CERT_")) continue;
    command += " -u " + Quoted(std::string(name.substr(0, name.find('='))));
  }
  for (const auto& [name, value] : variables) command += " " + name + "=" + Quoted(value);
  command += " " + Quoted(program);
  for (const std::string& argument : arguments) command += " " + Quoted(argument);
  command += " <" + Quoted(in) + " >" + Quoted(out) + " 2>" + Quoted(err) + " " + redirections;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ReadFile(out),
          ReadFile(err)};
}

std::string OneError(const Ended& ended, int exit_code) {
  EXPECT_EQ(ended.exit_code, exit_code) << ended.out << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  return ended.err;
}

}  // namespace castor::testing
