// Listening sockets for an address.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace castor::server {

// Sockets that listen, non-blocking and closed on exec; closes them when destroyed.
class ListeningSockets {
 public:
  // Listens on every address of the host in "HOST:PORT" or "[HOST]:PORT", on one port: localhost
  // often has two. The wildcard [::] includes IPv4. An address that this machine does not have is
  // left out unless it is the only one. Errors carry the reason alone.
  //
  // Or on "unix:PATH", replacing a socket that a dead server left; UNAVAILABLE if a server answers
  // there. Never touches a file that is not a socket.
  static absl::StatusOr<std::unique_ptr<ListeningSockets>> Open(const std::string& address);

  ~ListeningSockets();  // RemovePath
  ListeningSockets(const ListeningSockets&) = delete;
  ListeningSockets& operator=(const ListeningSockets&) = delete;

  // Removes a unix socket's file, if it is still ours.
  void RemovePath();

  const std::vector<int>& descriptors() const { return descriptors_; }
  int port() const { return port_; }  // that was bound; 0 on a unix socket

 private:
  ListeningSockets() = default;

  absl::Status ListenAt(const std::string& path);
  absl::Status ListenOn(const std::string& host, const std::string& port);

  std::vector<int> descriptors_;
  int port_ = 0;
  std::string path_;  // of a unix socket that listens
  ino_t inode_ = 0;   // its file's
};

}  // namespace castor::server
