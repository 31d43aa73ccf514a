// A text server on one processor and this program on another, so that the load cannot slow the
// server that it measures.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <vector>

#include "tests/bench/load/affinity.h"
#include "tests/bench/load/caller.h"
#include "tests/bench/load/open_loop.h"
#include "tests/bench/load/scenario.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {

class PinnedTextServer {
 public:
  explicit PinnedTextServer(const Settings& settings);

  const ServerProcess& process() const { return process_; }

  // Answers per second to a closed loop.
  double Capacity(std::chrono::duration<double> length);

  // Texts of 8 to 20 words with a deadline of a second.
  Outcomes Run(double rate, std::chrono::duration<double> length, uint64_t seed,
               const std::string& tenant = "");

 private:
  const Processors processors_ = TwoProcessors();
  ServerProcess process_;
  const PinnedTo here_;
  // Ten times too much is thousands of calls in flight: see Caller.
  Caller caller_;
  const std::vector<grpc::ByteBuffer> texts_;
};

}  // namespace castor::bench
