#include "server/transport/limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/machine.h"

namespace castor::server {
namespace {

constexpr int64_t kMaxConnectionsByDefault = 4096;

// Calls on all connections: as many as the engine queues, and as many whose messages still arrive,
// but never fewer than this.
constexpr int64_t kLeastMaxCalls = 8192;

// Of the health port: as many as there should be, or an eighth of what there is room for.
constexpr int64_t kHealthConnections = 64;

// The health port's own descriptors, without its connections'.
constexpr int64_t kHealthDescriptors = 8;

// Reserved for scrapes, the log, wake-ups of later threads, and whatever a library opens.
constexpr int64_t kSpareDescriptors = 24;

int64_t OpenDescriptors() {
  std::error_code error;
  int64_t count = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 30));
}

ServerOptions WithTransportLimits(ServerOptions options, int64_t descriptors,
                                  int64_t open_descriptors, int64_t memory_bytes) {
  const int64_t regions = options.shared_memory ? options.max_shared_memory_regions : 0;
  int64_t left = descriptors - open_descriptors - regions - kSpareDescriptors;
  if (!options.health_listen.empty()) {
    left -= kHealthDescriptors;
    const int64_t part =
        std::clamp<int64_t>(left / kDescriptorsPerConnection / 8, 1, kHealthConnections);
    if (options.max_health_connections == 0) options.max_health_connections = part;
    left -= options.max_health_connections * kDescriptorsPerConnection;
  }
  const int64_t room = std::max<int64_t>(left / kDescriptorsPerConnection, 1);
  if (options.max_connections == 0) options.max_connections = kMaxConnectionsByDefault;
  options.max_connections = std::min(options.max_connections, room);
  if (options.max_connections_per_host == 0) {
    options.max_connections_per_host = std::max<int64_t>(options.max_connections * 3 / 4, 1);
  }
  if (options.max_new_connections == 0) {
    options.max_new_connections = std::max<int64_t>(options.max_connections / 4, 1);
  }
  if (options.max_calls == 0) {
    options.max_calls = std::max(2 * options.engine.max_queued_requests, kLeastMaxCalls);
  }
  if (options.max_transport_bytes == 0) {
    options.max_transport_bytes = std::max(memory_bytes / 4, 2 * options.max_message_bytes);
  }
  return options;
}

ServerOptions WithTransportLimits(ServerOptions options) {
  return WithTransportLimits(std::move(options), RaiseDescriptorLimit(), OpenDescriptors(),
                             MemoryLimitBytes());
}

}  // namespace castor::server
