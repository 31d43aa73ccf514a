// The HTTP endpoint that Prometheus scrapes.
//
// Serves from Start to destruction, on one thread of its own that waits for all connections at
// once, so that sockets which say nothing, or half of a request, hold nobody up. When there are too
// many connections the one that has been silent longest goes: a scraper is always newer than it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/transport/bind.h"

namespace castor::server {

class MetricsEndpoint {
 public:
  // Serves what `page` returns as /metrics at "HOST:PORT". `page` is called on the endpoint's
  // thread at each scrape, until the destructor returns.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& listen,
                                                                std::function<std::string()> page);

  // Stops at once: connections are cut.
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  // Differs from the port asked for when that was 0.
  int port() const { return sockets_.port(); }

 private:
  class Http;

  MetricsEndpoint(ListeningSockets sockets, std::unique_ptr<Http> http, int wake);

  void Run();

  // Takes connections that wait. False where the process has no descriptor for them.
  bool Accept(int listening);

  const ListeningSockets sockets_;
  const std::unique_ptr<Http> http_;  // the thread's, while that runs
  const int wake_;                    // an eventfd: readable when it is time to stop
  std::thread thread_;
};

}  // namespace castor::server
