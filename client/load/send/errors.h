// An error of the server, or of the connection to it: not of what this side was told.
#pragma once

#include <string>

#include "client/cli/command.h"

namespace castor::load {

class ServerError : public cli::Failure {
 public:
  explicit ServerError(const std::string& message) : Failure(message, cli::kServerError) {}
};

}  // namespace castor::load
