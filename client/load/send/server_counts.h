// What a server counted during a run, by its metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "client/load/results/run_data.h"

namespace castor::load {

// Where the metrics of the server at `target` (HOST:PORT, or a Unix socket) are, that says of
// itself that it listens for them at `listens`, such as "0.0.0.0:9464". Empty if nobody knows: it
// has none, they are for its own machine only, or the target is another kind of name.
std::string MetricsOf(const std::string& target, const std::string& listens);

// The counts of attend and encode calls by status code, from their first to their second reading.
class ServerReading {
 public:
  // Reads for the first time. `address`: HOST:PORT or a URL; "": nothing is read. Blocks.
  explicit ServerReading(std::string address);

  // Reads again. A server counts a call when it has ended, which may be a moment after its answer
  // has come: this waits until the counts stand still, half a second at most. Sets `counts`'
  // metrics and counted, or nothing if either reading failed.
  void Finish(ServerCounts* counts) const;

 private:
  const std::string address_;
  const std::map<std::string, int64_t> before_;
};

}  // namespace castor::load
