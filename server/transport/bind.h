// Listening sockets for an address.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/transport/unix_socket.h"

namespace castor::server {

// Sockets that listen, non-blocking and closed on exec; closes them when destroyed. Movable.
class ListeningSockets {
 public:
  // Listens on every address of the host in "HOST:PORT" or "[HOST]:PORT", on one port: localhost
  // often has two. The wildcard [::] includes IPv4. An address that this machine does not have is
  // left out unless it is the only one. Or on "unix:PATH", as UnixSocket does. Errors carry the
  // reason alone.
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);

  ~ListeningSockets();
  ListeningSockets(ListeningSockets&&) noexcept = default;
  ListeningSockets& operator=(ListeningSockets&&) = delete;

  const std::vector<int>& descriptors() const { return descriptors_; }
  int port() const { return port_; }  // that was bound; 0 on a unix socket

 private:
  ListeningSockets() = default;

  std::unique_ptr<UnixSocket> unix_socket_;  // which owns its descriptor
  std::vector<int> descriptors_;
  int port_ = 0;
};

}  // namespace castor::server
