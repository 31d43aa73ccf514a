// What a gRPC target says of where it leads.
#pragma once

#include <string_view>

namespace castor::client {

// Whether every address it names is on this machine: a Unix socket, localhost, a loopback address,
// 0.0.0.0 or ::, or an interface's own. A name that a resolver would have to be asked for counts as
// another machine.
bool IsOnThisMachine(std::string_view target);

}  // namespace castor::client
