// A server's counts during a run, from its metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "client/load/results/run_data.h"

namespace castor::load {

// The address of the metrics of the server at `target` (HOST:PORT, or a Unix socket), which reports
// that it listens for them at `listens`, such as "0.0.0.0:9464". Empty if the server has none, if
// they cannot be reached from this machine, or if the target is another kind of name.
std::string MetricsOf(const std::string& target, const std::string& listens);

// Counts attend and encode calls by status code between two readings.
class ServerReading {
 public:
  // Reads for the first time, from HOST:PORT or a URL; "" reads nothing. Blocks.
  explicit ServerReading(std::string address);

  // Reads again. A server may count a call a moment after its answer has arrived, so this waits
  // until the counts stand still, half a second at most. Sets metrics and counted, or nothing if
  // either reading failed.
  void Finish(ServerCounts* counts) const;

 private:
  const std::string address_;
  const std::map<std::string, int64_t> before_;
};

}  // namespace castor::load
