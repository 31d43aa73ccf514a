#include "server/lifecycle/health_endpoint.h"

#include <grpcpp/security/server_credentials.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/transport/listener.h"

namespace castor::server {
namespace {

// Checks; and an eighth as many watches. One host has three quarters of them at most.
constexpr int64_t kCalls = 256;
constexpr int32_t kCallsPerConnection = 32;

// The longest name of a health check is that of a model, of 128 bytes.
constexpr int64_t kMessageBytes = 4 << 10;

// Probes connect anew each time.
constexpr std::chrono::seconds kIdle{30};

// For messages that are still arriving, on all connections.
constexpr int64_t kTransportBytes = 16 << 20;

ListenerSettings SettingsOfHealth(const ServerOptions& options) {
  ListenerSettings settings = SettingsOf(options);
  settings.address = options.health_listen;
  settings.max_message_bytes = kMessageBytes;
  settings.max_transport_bytes = kTransportBytes;
  settings.max_concurrent_streams = kCallsPerConnection;
  settings.max_connection_idle = kIdle;
  return settings;
}

}  // namespace

HealthEndpoint::HealthEndpoint(const ServerOptions& options, HealthState& state, Metrics& metrics)
    : connections_({.total = options.max_health_connections,
                    .per_host = std::max<int64_t>(options.max_health_connections * 3 / 4, 1)},
                   &metrics),
      calls_({.calls = kCalls,
              .calls_per_connection = kCallsPerConnection,
              .metadata_bytes = kMaxMetadataBytes,
              .transfer = options.transfer_timeout},
             connections_, metrics),
      // Checks count as work here. Watches, which may last for days, take no room from them.
      service_(state, calls_, {CallTable::Kind::kWork, CallTable::Kind::kHealth}, authorizer_) {}

absl::StatusOr<std::unique_ptr<HealthEndpoint>> HealthEndpoint::Open(const ServerOptions& options,
                                                                     HealthState& state,
                                                                     Metrics& metrics,
                                                                     Periodic& periodic) {
  auto endpoint = std::unique_ptr<HealthEndpoint>(new HealthEndpoint(options, state, metrics));
  auto listener = Listener::Open(SettingsOfHealth(options), grpc::InsecureServerCredentials(),
                                 {&endpoint->service_}, endpoint->connections_, metrics, periodic);
  if (!listener.ok()) return listener.status();
  endpoint->listener_ = *std::move(listener);
  return endpoint;
}

}  // namespace castor::server
