// The HTTP endpoint that Prometheus scrapes.
//
// Serves from Start to destruction, on one thread of its own that waits for all connections at
// once. So a socket that sends nothing, or half a request, holds nobody up. When there are too many
// connections, the one that has been silent longest is closed: a scraper is always newer.
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

  // Differs from the requested port if that was 0.
  int port() const { return sockets_.port(); }

 private:
  class Http;

  MetricsEndpoint(ListeningSockets sockets, std::unique_ptr<Http> http, int wake);

  void Run();

  // Accepts waiting connections. False if the process has no descriptor for them.
  bool Accept(int listening);

  const ListeningSockets sockets_;
  const std::unique_ptr<Http> http_;  // the thread's, while that runs
  const int wake_;                    // an eventfd: readable when it is time to stop
  std::thread thread_;
};

}  // namespace castor::server
