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

// In an environment with `variables`, and without others of Castor or OpenSSL. Files it needs go to
// `folder`.
Ended RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::pair<std::string, std::string>>& variables,
                 const std::string& folder);

}  // namespace castor::testing
