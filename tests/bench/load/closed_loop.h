// A closed-loop client: it keeps a fixed number of calls in flight and so finds what a server can
// do, without overloading it.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <vector>

#include "tests/bench/load/caller.h"

namespace castor::bench {

// OK answers per second over `length`, with `window` calls in flight.
double MeasureCapacity(Caller& caller, const char* method,
                       const std::vector<grpc::ByteBuffer>& requests, int window,
                       std::chrono::duration<double> length);

}  // namespace castor::bench
