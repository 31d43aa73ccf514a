// Runs a program to its end, and keeps what it said.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace castor::testing {

struct Ended {
  int exit_code = -1;  // 128 + n if signal n ended it
  std::string out, err;
};

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

// In an environment with `variables`, and without others of Castor or OpenSSL; with `input` as its
// standard input, and the shell's further `redirections`. Files it needs go to `folder`.
Ended RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::pair<std::string, std::string>>& variables,
                 const std::string& folder, const std::string& input = "",
                 const std::string& redirections = "");

// The one line on standard error of a program that must end with this code, and say one thing.
std::string OneError(const Ended& ended, int exit_code);

}  // namespace castor::testing
