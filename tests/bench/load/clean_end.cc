#include "tests/bench/load/clean_end.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

namespace castor::bench {
namespace {

// The names and values of those gauges that are not 0.
std::string LeftBehind(const client::MetricsPage& page) {
  if (page.empty()) return "no metrics";
  std::string left;
  for (const auto& [name, value] : page) {
    const bool gauge =
        name.starts_with("castor_inflight_") || name.starts_with("castor_queue_depth");
    if (gauge && value != 0) left += name + " " + Whole(value) + " ";
  }
  return left;
}

}  // namespace

void CheckNothingLeftBehind(const ServerProcess& server, Report& report) {
  std::string left = LeftBehind(server.Metrics());
  for (int attempt = 1; attempt < 40 && !left.empty(); ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    left = LeftBehind(server.Metrics());
  }
  report.Check("gauges of work are back at zero", left.empty(), left.empty() ? "all" : left);
}

void CheckDrained(ServerProcess& server, Report& report) {
  const std::optional<int> exit_code = server.Wait(std::chrono::minutes(1));
  report.Check("the drained server's exit code", exit_code == 0,
               exit_code.has_value() ? std::to_string(*exit_code) : "none");
}

}  // namespace castor::bench
