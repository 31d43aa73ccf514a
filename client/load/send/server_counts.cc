#include "client/load/send/server_counts.h"

#include <chrono>
#include <thread>
#include <utility>

#include "client/credentials.h"
#include "client/metrics/fetch.h"

namespace castor::load {
namespace {

constexpr int kReadings = 25;
constexpr std::chrono::milliseconds kBetween{20};

using Counts = std::map<std::string, int64_t>;

Counts Read(const std::string& address) {
  Counts counts;
  if (address.empty()) return counts;
  client::ForEachSeries(client::FetchMetrics(address), "castor_requests_total",
                        [&](std::string_view labels, double value) {
                          const std::string method = client::LabelOf(labels, "method");
                          if (method != "attend" && method != "encode") return;
                          if (!(value >= 0 && value < 1e15)) return;
                          counts[client::LabelOf(labels, "code")] += static_cast<int64_t>(value);
                        });
  return counts;
}

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

std::string MetricsOf(const std::string& target, const std::string& listens) {
  const size_t colon = listens.rfind(':');
  if (colon == std::string::npos) return "";
  const std::string port = listens.substr(colon), host = HostOf(listens);
  const bool here = client::IsOnThisMachine(target);
  if (host == "0.0.0.0" || host == "[::]") {
    if (here) return "127.0.0.1" + port;
    const bool plain = target.find('/') == std::string::npos && HostOf(target) != target;
    return plain ? HostOf(target) + port : "";
  }
  return client::IsOnThisMachine(listens) && !here ? "" : listens;
}

ServerReading::ServerReading(std::string address)
    : address_(std::move(address)), before_(Read(address_)) {}

void ServerReading::Finish(ServerCounts* counts) const {
  if (before_.empty()) return;
  Counts after;
  for (int reading = 0; reading < kReadings; ++reading) {
    Counts now = Read(address_);
    const bool still = now == after;
    after = std::move(now);
    if (still) break;
    std::this_thread::sleep_for(kBetween);
  }
  if (after.empty()) return;
  counts->metrics = address_;
  for (const auto& [code, count] : after) {
    const auto found = before_.find(code);
    counts->counted[code] =
        std::max<int64_t>(-1, count - (found == before_.end() ? 0 : found->second));
  }
}

}  // namespace castor::load
