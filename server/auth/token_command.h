// castor-server token NAME: draws a token, and prints the entry for the file of callers.
#pragma once

namespace castor::server {

// `argv` from "token" on. The exit code: 0, 1 where it cannot write or draw, 2 for bad arguments.
int RunTokenCommand(int argc, const char* const* argv);

}  // namespace castor::server
