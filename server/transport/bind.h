// Listening sockets for a "HOST:PORT", for the servers that do not bind for themselves.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace castor::server {

// Sockets that listen, non-blocking and closed on exec; closes them when destroyed. Movable.
class ListeningSockets {
 public:
  // Listens at every address that the host of "HOST:PORT" or "[HOST]:PORT" stands for, on one port:
  // localhost is often two. The wildcard [::] takes IPv4 too. An address that this machine lacks is
  // left out unless it is the only one. An error says what the system said.
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);

  ~ListeningSockets();
  ListeningSockets(ListeningSockets&& other) noexcept;
  ListeningSockets& operator=(ListeningSockets&&) = delete;

  const std::vector<int>& descriptors() const { return descriptors_; }
  int port() const { return port_; }  // the one taken, when that asked for was 0

 private:
  ListeningSockets() = default;

  std::vector<int> descriptors_;
  int port_ = 0;
};

}  // namespace castor::server
