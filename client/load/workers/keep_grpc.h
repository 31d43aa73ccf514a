// gRPC ends when its last server or channel goes, and that sometimes waits ten seconds for a poller
// of its own (1.51). A process that uses it once keeps it.
#pragma once

#include <grpc/grpc.h>

namespace castor::load {

inline void KeepGrpc() {
  static const bool kept = (grpc_init(), true);
  (void)kept;
}

}  // namespace castor::load
