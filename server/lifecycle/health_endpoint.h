// The health port: a second gRPC listener, in plaintext, that serves grpc.health.v1.Health and
// nothing else, for probes that speak no TLS and cannot prove who they are, as kubelet's. It has
// connections and calls of its own, with small bounds, so a flood here takes no room from work.
//
// The owner calls everything, on one thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/auth/caller_authorizer.h"
#include "server/lifecycle/health.h"
#include "server/metrics/metrics.h"
#include "server/options/options.h"
#include "server/services/health_service.h"
#include "server/transport/call_table.h"
#include "server/transport/connections.h"
#include "server/transport/listener.h"

namespace castor::server {

class HealthEndpoint {
 public:
  // Serves `state` at options.health_listen, which is not empty. `options` are those that
  // WithTransportLimits returned. The others must outlive the endpoint.
  static absl::StatusOr<std::unique_ptr<HealthEndpoint>> Open(const ServerOptions& options,
                                                              HealthState& state, Metrics& metrics,
                                                              Periodic& periodic);

  int port() const { return listener_->port(); }

  // Ends every connection. The destructor does it, too.
  void Close() { listener_->Close(); }

 private:
  HealthEndpoint(const ServerOptions& options, HealthState& state, Metrics& metrics);

  const OpenToAll authorizer_;
  Connections connections_;
  CallTable calls_;
  HealthService service_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace castor::server
