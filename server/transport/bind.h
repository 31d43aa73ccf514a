// Listening sockets for a "HOST:PORT", for the servers that do not bind for themselves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace castor::server {

// Sockets that listen, non-blocking and closed on exec; closes them when destroyed. Movable.
class ListeningSockets {
 public:
  // Listens on every address of the host in "HOST:PORT" or "[HOST]:PORT", on one port: localhost
  // often has two. The wildcard [::] includes IPv4. An address that this machine does not have is
  // left out unless it is the only one. Errors carry the system's reason.
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);

  ~ListeningSockets();
  ListeningSockets(ListeningSockets&& other) noexcept;
  ListeningSockets& operator=(ListeningSockets&&) = delete;

  const std::vector<int>& descriptors() const { return descriptors_; }
  int port() const { return port_; }  // the chosen port if the requested one was 0

 private:
  ListeningSockets() = default;

  std::vector<int> descriptors_;
  int port_ = 0;
};

// UNAVAILABLE: "cannot listen on ADDRESS: CAUSE".
absl::Status CannotListen(std::string_view address, std::string_view cause);

}  // namespace castor::server
