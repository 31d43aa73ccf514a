// The path of a unix: socket, which one server owns at a time.
//
// A socket is bound at a temporary path beside the real one, and moves there when it listens. It
// replaces what a dead server left, and nobody ever finds a path that does not answer.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace castor::server {

class UnixSocket {
 public:
  // Listens on "unix:PATH", claimed by a lock on PATH.lock, which ends with the process in any
  // case. UNAVAILABLE if a server is alive there: one that holds the lock, or any that answers.
  // Replaces a dead server's socket, and never touches a file that is no socket.
  static absl::StatusOr<std::unique_ptr<UnixSocket>> Listen(const std::string& address);

  // Removes the path if it is still ours, first, and the lock; then closes the socket.
  ~UnixSocket();
  UnixSocket(const UnixSocket&) = delete;
  UnixSocket& operator=(const UnixSocket&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  UnixSocket(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;
  int descriptor_ = -1;
  dev_t device_ = 0;  // of our socket; 0 with inode_ 0: there is none yet
  ino_t inode_ = 0;
};

}  // namespace castor::server
