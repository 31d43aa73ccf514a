// One request that is far too large for its time, beside small ones that must not notice it.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/bench/load/report.h"
#include "tests/bench/load/scenario.h"

namespace castor::bench {

struct HugeRequest {
  std::string name{};
  const char* method = "";
  grpc::ByteBuffer bytes{};
  // How it ends if the server lets it: by its own deadline, or by the caller's cancellation.
  bool has_deadline = false;
  std::chrono::milliseconds time{2000};

  // Sent every 50 ms beside it.
  const char* small_method = "";
  grpc::ByteBuffer small{};
};

// Twice on a fresh server: with the small ones, for their latency, and without them, for how long
// the server goes on computing after the end.
void MeasureHuge(const Settings& settings, const std::vector<std::string>& server_flags,
                 const HugeRequest& huge, Report& report);

}  // namespace castor::bench
