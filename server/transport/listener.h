// The gRPC listener: the address, the connections on it, and the limits that hold before any
// handler of ours runs.
//
//   Open     binds, and builds gRPC's server; callers queue up
//   Close    nobody new; who is connected is disconnected; gRPC's server shuts down
//
// The owner calls everything, on one thread.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/transport/acceptor.h"
#include "server/transport/connections.h"

namespace castor::server {

class Listener {
 public:
  // Binds options.listen and serves `services`. UNAVAILABLE when the address cannot be bound.
  // `connections`, the services and `metrics` must outlive the listener.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const ServerOptions& options,
                                                        const std::vector<grpc::Service*>& services,
                                                        Connections& connections, Metrics& metrics);

  ~Listener();  // Close

  int port() const { return acceptor_->port(); }  // 0 on a unix socket

  // Ends every connection and every call that is left. Answers of finished calls have left the
  // process by then.
  void Close();

 private:
  explicit Listener(Connections& connections) : connections_(connections) {}

  Connections& connections_;
  std::unique_ptr<ConnectionWatch> watch_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Acceptor::Sink> sink_;
  std::unique_ptr<grpc::Server> server_;
};

// `address` with its port replaced by the one that was picked; unix: addresses as they are.
std::string WithPort(const std::string& address, int port);

}  // namespace castor::server
