// The listening sockets, and the thread that takes connections from them and hands them to the
// server of their protocol.
//
// gRPC 1.51's own listener accepts every connection, and stops forever at the first accept that
// fails for lack of a descriptor. This one keeps a descriptor in reserve, so that it can refuse
// connections when there is none left, and asks Connections before it hands a connection over.
//
// The owner calls everything, on one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/metrics/metrics.h"
#include "server/transport/bind.h"
#include "server/transport/connections.h"

namespace castor::server {

class Acceptor {
 public:
  // Takes over a connected, non-blocking `socket` that came to the descriptor `listener`.
  using Sink = std::function<void(int listener, int socket, const sockaddr_storage& from)>;

  // Binds "HOST:PORT", every address of the host, or "unix:PATH", and listens: connections queue up
  // from now on. UNAVAILABLE if it cannot.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Bind(const std::string& address);

  ~Acceptor();  // Stop
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  int port() const { return sockets_->port(); }  // that was bound; 0 on a unix socket

  // Begins to accept, and calls `sink` on its thread. `connections` and `metrics` (null: nothing is
  // counted) must outlive Stop.
  void Start(Sink sink, Connections* connections, Metrics* metrics);

  // From now on the system refuses new connections. Existing ones stay.
  void StopListening();

  // The same, and ends the thread. A unix socket's path is gone.
  void Stop();

 private:
  Acceptor() = default;

  void Run();
  // False once the socket does not listen any more.
  bool AcceptAll(int listener);
  // True when a connection could be turned away.
  bool TurnAwayWithTheReserve(int listener);
  void Refuse(RefusedConnection cause);

  std::unique_ptr<ListeningSockets> sockets_;
  int epoll_ = -1;
  int reserve_ = -1;  // a descriptor to give up when there is no other

  Sink sink_;
  Connections* connections_ = nullptr;
  Metrics* metrics_ = nullptr;

  // The thread's.
  std::chrono::steady_clock::time_point warned_{};
  int64_t refused_since_warning_ = 0;

  std::atomic<bool> listening_ = true;
  std::thread thread_;
};

}  // namespace castor::server
