// The path of a unix: socket, which one server owns at a time.
//
// A socket is bound at a temporary path beside the real one, and moves there when it listens. It
// replaces what a dead server left, and nobody ever finds a path that does not answer.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace castor::server {

// Used by one thread; must outlive the server that listens.
class UnixSocket {
 public:
  // Claims the path of "unix:PATH" by a lock on PATH.lock, which ends with the process in any case.
  // UNAVAILABLE if a server is alive there: one that holds the lock, or any that answers. Publish
  // replaces a dead server's socket; a file that is not a socket is never touched.
  static absl::StatusOr<std::unique_ptr<UnixSocket>> Claim(const std::string& address);

  // Removes the socket if it is still ours, and the lock.
  ~UnixSocket();
  UnixSocket(const UnixSocket&) = delete;
  UnixSocket& operator=(const UnixSocket&) = delete;

  // The path to listen at.
  const std::string& bind_path() const { return temporary_; }

  // Moves the socket that listens there to PATH. Once, after the listener listens.
  absl::Status Publish();

 private:
  UnixSocket(std::string path, int lock);

  const std::string path_;
  const std::string temporary_;
  const int lock_;
  dev_t device_ = 0;  // of our socket; 0 with inode_ 0: there is none yet
  ino_t inode_ = 0;
};

}  // namespace castor::server
