// A path for a unix: socket, which one server has at a time.
//
// gRPC replaces whatever socket lies at the path that it is to listen at, and removes what lies
// there when it ends, whoever serves by then. So it is given a path of its own beside, and its
// socket moves to the real one when it listens.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace castor::server {

// Used by one thread; must outlive the server that listens.
class UnixSocket {
 public:
  // Claims the path of "unix:PATH" by a lock on PATH.lock, which ends with the process however that
  // ends. UNAVAILABLE where a server lives there: one that holds the lock, or any that answers.
  // What a dead one left is replaced by Publish; what is no socket is never touched.
  static absl::StatusOr<std::unique_ptr<UnixSocket>> Claim(const std::string& address);

  // Removes the socket if it is still ours, and the lock.
  ~UnixSocket();
  UnixSocket(const UnixSocket&) = delete;
  UnixSocket& operator=(const UnixSocket&) = delete;

  // The "unix:..." to listen at.
  std::string bind_address() const { return "unix:" + temporary_; }

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
