// What the listener's connections are secured with: the one place that decides it.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/options.h"

namespace castor::server {

// Plaintext, whatever the options say: there are none yet about this. A function of its arguments.
std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(const ServerOptions& options);

}  // namespace castor::server
