// The last resort against peers that make gRPC's memory grow in ways that nobody counts. While the
// process has more than half of its memory limit, connections are closed, the one with the most
// unfinished bytes first.
//
// For one thread.
#pragma once

#include <cstdint>

#include "server/transport/connections.h"

namespace castor::server {

class MemoryGuard {
 public:
  MemoryGuard();
  // With an explicit limit, in bytes.
  explicit MemoryGuard(int64_t limit) : limit_(limit) {}

  // Call periodically. Closes one connection at most; returns whether it did.
  bool Look(Connections& connections);

  // Whether little memory was left at the last check, so that the next should come soon.
  bool near() const { return near_; }

 private:
  const int64_t limit_;
  bool near_ = false;
};

}  // namespace castor::server
