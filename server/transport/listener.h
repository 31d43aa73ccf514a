// A gRPC listener: an address, the connections on it, and the limits that hold before any handler
// of ours runs. One process may have several.
//
//   Open        binds, and builds gRPC's server; callers queue up
//   Leave       accepts no more; asks connected peers to go elsewhere, and serves them until then
//   Disconnect  accepts no more; disconnects peers once they have their answers
//   Close       gRPC's server shuts down
//
// The owner calls everything, on one thread.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/lifecycle/periodic.h"
#include "server/metrics/metrics.h"
#include "server/options/options.h"
#include "server/transport/acceptor.h"
#include "server/transport/connections.h"

namespace castor::server {

// Where a listener listens, and what it lets in. The bounds on connections and calls are those of
// its Connections and CallTable.
struct ListenerSettings {
  std::string address;  // HOST:PORT, or unix:PATH
  int64_t max_message_bytes = 0;
  int64_t max_transport_bytes = 0;     // of messages that are not whole, on all connections
  int32_t max_concurrent_streams = 0;  // on one connection
  std::chrono::milliseconds handshake_timeout{0};
  std::chrono::milliseconds max_connection_idle{300'000};  // without a call
  std::chrono::milliseconds max_connection_age{0};         // 0: unlimited
  std::chrono::milliseconds max_connection_age_grace{0};   // for calls on an aged connection
};

// The part of max_transport_bytes that messages may take while they are decoded. gRPC may hold the
// rest.
int64_t DecodingBytes(const ServerOptions& options);

// The settings of the listener for all services, at options.listen.
ListenerSettings SettingsOf(const ServerOptions& options);

// Whether gRPC can start its threads. It waits forever for a thread that it cannot start. It starts
// threads when credentials are made, so call this first.
absl::Status CheckThreadsOfGrpc();

class Listener {
 public:
  // Binds the address and serves `services`, and nothing else. UNAVAILABLE when the address cannot
  // be bound. `connections`, which `periodic` watches, the services and `metrics` must outlive the
  // listener.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(
      const ListenerSettings& settings, std::shared_ptr<grpc::ServerCredentials> credentials,
      const std::vector<grpc::Service*>& services, Connections& connections, Metrics& metrics,
      Periodic& periodic);

  ~Listener();  // Close

  int port() const { return acceptor_->port(); }  // 0 on a unix socket

  // From now on the system refuses new connections, and those that stand end with the calls on
  // them; peers learn of it within a round trip. False where this gRPC cannot tell them.
  bool Leave();

  // Ends every connection. Peers have until `deadline` to take the answers of finished calls.
  void Disconnect(TimePoint deadline);

  // Ends every connection, at once, and every call that is left.
  void Close();

 private:
  explicit Listener(Connections& connections) : connections_(connections) {}

  Connections& connections_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // the server asks them until it ends
  std::optional<Periodic::Task> watch_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> sink_;
  std::unique_ptr<grpc::Server> server_;
};

// `address` with its port replaced by the one that was picked; unix: addresses as they are.
std::string WithPort(const std::string& address, int port);

// The transport's limits. Those that the options leave open are derived from the process's limits.

// No request needs more metadata, and this gRPC's parser has had trouble with large headers.
inline constexpr int64_t kMaxMetadataBytes = 8 << 10;

// Descriptors of one connection: gRPC's and ours (connections.h).
inline constexpr int64_t kDescriptorsPerConnection = 2;

// Raises the soft limit on descriptors to the hard one, as a server may; returns it.
int64_t RaiseDescriptorLimit();

// `options` with max_connections, max_connections_per_host, max_new_connections, max_calls,
// max_transport_bytes and, where there is a health port, max_health_connections set. `descriptors`
// is the process's limit, `open_descriptors` how many are open, `memory_bytes` its memory limit.
ServerOptions WithTransportLimits(ServerOptions options, int64_t descriptors,
                                  int64_t open_descriptors, int64_t memory_bytes);

// The same, for this process as it is now.
ServerOptions WithTransportLimits(ServerOptions options);

}  // namespace castor::server
