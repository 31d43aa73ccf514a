// The HTTP endpoint that Prometheus scrapes.
//
// Serves from Start to destruction, on threads of its own. Used by one thread.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <sys/socket.h>

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace castor::server {

class MetricsEndpoint {
 public:
  // Serves what `sources` collect as /metrics at "HOST:PORT". It shares the sources' ownership, as
  // scrapes may run until the destructor returns.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const std::string& listen, std::span<const std::shared_ptr<prometheus::Collectable>> sources);

  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  // Differs from the port asked for when that was 0.
  int port() const { return port_; }

 private:
  MetricsEndpoint(std::unique_ptr<prometheus::Exposer> exposer, const std::string& listen);

  // Opens a connection to the endpoint and drops it.
  void Knock() const;

  std::unique_ptr<prometheus::Exposer> exposer_;
  const int port_;
  sockaddr_storage address_{};    // where a client of this machine reaches the endpoint
  socklen_t address_length_ = 0;  // 0 when that is not known
};

}  // namespace castor::server
