// The listening sockets, and the thread that takes connections from them and hands them to gRPC.
//
// gRPC 1.51's own listener accepts every connection, and stops for good at the first accept that
// fails for lack of a descriptor. This one keeps a descriptor in reserve, so that it can refuse
// callers when there is none left, and asks Connections before it accepts one. Where callers are to
// speak TLS, it waits for their hello and looks at that; gRPC does the rest of the handshake.
//
// The owner calls everything, on one thread.
#pragma once

#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "server/metrics/metrics.h"
#include "server/tls/client_hello.h"
#include "server/transport/bind.h"
#include "server/transport/connection_watch.h"
#include "server/transport/connections.h"

namespace castor::server {

class Acceptor {
 public:
  using Sink = grpc::experimental::ExternalConnectionAcceptor;

  // Binds "HOST:PORT", every address of the host, or "unix:PATH", and listens: connections queue up
  // from now on. UNAVAILABLE if it cannot.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Bind(const std::string& address);

  ~Acceptor();  // Stop
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  int port() const { return port_; }  // that was bound; 0 on a unix socket

  // Begins to accept. `sink` belongs to a server that has been started. All arguments must outlive
  // Stop. With `least`, callers must speak TLS, of that version or a newer one.
  void Start(Sink* sink, Connections* connections, ConnectionWatch* watch, Metrics* metrics,
             std::optional<TlsVersion> least);

  // Closes the listening sockets: from now on the system refuses new connections. Existing ones
  // stay.
  void StopListening();

  // Ends the thread.
  void Stop();

 private:
  Acceptor() = default;

  void Run();
  void AcceptAll(int listener);
  void HandOver(int socket, int listener, Connection& connection);
  // Looks at what a caller has said so far: hands it over, turns it away, or goes on waiting,
  // unless it has `ended`: hung up, or been closed for its silence.
  void Examine(int socket, bool ended);
  void TurnAway(int socket, RefusedConnection cause);
  void DropGreeting(int socket);
  // True when a connection could be turned away.
  bool TurnAwayWithTheReserve(int listener);
  void Refuse(RefusedConnection cause);
  void Wake();

  std::optional<ListeningSockets> sockets_;
  int port_ = 0;
  int epoll_ = -1;
  int wake_ = -1;     // eventfd
  int reserve_ = -1;  // a descriptor to give up when there is no other

  Sink* sink_ = nullptr;
  Connections* connections_ = nullptr;
  ConnectionWatch* watch_ = nullptr;
  Metrics* metrics_ = nullptr;
  std::optional<TlsVersion> least_;
  std::atomic<bool> listening_ = true;
  std::atomic<bool> stopped_ = false;

  // The thread's. Callers who have not said hello yet, by their sockets, which are ours.
  struct Greeting {
    int listener = -1;
    std::shared_ptr<Connection> connection = {};
  };
  std::unordered_map<int, Greeting> greeting_;
  std::chrono::steady_clock::time_point warned_{};
  int64_t refused_since_warning_ = 0;

  std::thread thread_;
};

}  // namespace castor::server
