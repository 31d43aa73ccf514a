// The last resort against peers that make gRPC's memory grow by ways that nobody counts: while the
// process has more than half of its memory limit, connections are closed, those first
// that have sent most that is not whole.
//
// One thread's.
#pragma once

#include <cstdint>

#include "server/transport/connections.h"

namespace castor::server {

class MemoryGuard {
 public:
  MemoryGuard();
  // With a limit of its own, in bytes.
  explicit MemoryGuard(int64_t limit) : limit_(limit) {}

  // To be called again and again. Closes one connection at most; returns whether it did.
  bool Look(Connections& connections);

  // Whether little was left at the last look, so that the next should come soon.
  bool near() const { return near_; }

 private:
  const int64_t limit_;
  bool near_ = false;
};

}  // namespace castor::server
