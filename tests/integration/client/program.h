// Runs a program to its end, and keeps its output.
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

// Runs the program in an environment with `variables` and without others of Castor or OpenSSL, with
// `input` as its standard input and the shell's further `redirections`. Its files go to `folder`.
Ended RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::pair<std::string, std::string>>& variables,
                 const std::string& folder, const std::string& input = "",
                 const std::string& redirections = "");

// The single line on standard error of a program that must end with this code.
std::string OneError(const Ended& ended, int exit_code);

}  // namespace castor::testing
