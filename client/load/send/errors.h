// An error of the server, or of the connection to it: not of what this side was told.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace castor::load {

class ServerError : public CLI::Error {
 public:
  explicit ServerError(const std::string& message) : CLI::Error("ServerError", message, 1) {}
};

}  // namespace castor::load
