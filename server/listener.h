// The gRPC listener and the limits that it enforces before any of our code runs.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/options.h"

namespace castor::server {

struct Listener {
  std::unique_ptr<grpc::Server> server;
  int port = 0;  // 0 on a unix: socket
};

// Binds options.listen and serves `services`, which must outlive the server. UNAVAILABLE when the
// address cannot be bound.
absl::StatusOr<Listener> OpenListener(const ServerOptions& options,
                                      const std::vector<grpc::Service*>& services);

// `address` with its port replaced by the one that was picked; unix: addresses as they are.
std::string WithPort(const std::string& address, int port);

}  // namespace castor::server
