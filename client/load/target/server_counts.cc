#include "client/load/target/server_counts.h"

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "client/metrics/fetch.h"

namespace castor::load {
namespace {

constexpr int kReadings = 25;
constexpr std::chrono::milliseconds kBetween{20};

using Series = std::map<std::string, double>;

// Castor's own.
Series FetchSeries(const std::string& address) {
  Series series;
  for (const auto& [name, value] : client::FetchMetrics(address)) {
    if (name.starts_with("castor_")) series[name] = value;
  }
  return series;
}

// The counts of calls alone: the rest of a page is never still.
Series CallsOf(const Series& page) {
  Series calls;
  for (const auto& [series, value] : page) {
    if (series.starts_with("castor_requests_total")) calls[series] = value;
  }
  return calls;
}

}  // namespace

std::vector<ServerCounts> AskServers(const std::vector<std::string>& addresses, size_t endpoints) {
  std::vector<ServerCounts> servers(endpoints);
  for (size_t i = 0; i < addresses.size() && i < endpoints; ++i) {
    servers[i].before = FetchSeries(addresses[i]);
    if (!servers[i].before.empty()) servers[i].endpoint = addresses[i];
  }
  return servers;
}

void AskAgain(std::vector<ServerCounts>& servers) {
  for (ServerCounts& server : servers) {
    if (server.endpoint.empty()) continue;
    for (int reading = 0; reading < kReadings; ++reading) {
      Series page = FetchSeries(server.endpoint);
      const bool still = CallsOf(page) == CallsOf(server.after);
      server.after = std::move(page);
      if (still) break;
      std::this_thread::sleep_for(kBetween);
    }
  }
}

}  // namespace castor::load
