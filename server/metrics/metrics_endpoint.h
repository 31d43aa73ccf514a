// The HTTP endpoint that Prometheus scrapes, plain or over TLS.
//
// Serves from Start to destruction, on one thread of its own that waits for all connections at
// once. So a socket that sends nothing, or half a request, does not delay others. When there are
// too many connections, the one that has been silent longest is closed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/tls/certificates.h"
#include "server/transport/bind.h"

namespace castor::server {

// The endpoint's certificates, and the check of those who scrape.
struct MetricsAccess {
  const LiveCertificates* certificates = nullptr;  // null: plain HTTP; must outlive the endpoint
  // Decides by the header `authorization` (empty: none) and the peer's address whether the page may
  // be read: OK, UNAUTHENTICATED or PERMISSION_DENIED. No function: every scrape is allowed. Runs
  // on the endpoint's thread.
  std::function<absl::Status(std::string_view authorization, std::string_view peer)> authorize{};
};

class MetricsEndpoint {
 public:
  using Page = std::function<std::string()>;

  // Serves what `page` returns, text format 0.0.4, as /metrics at "HOST:PORT". `page` is called on
  // the endpoint's thread at each scrape, until the destructor returns.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& listen,
                                                                Page page,
                                                                MetricsAccess access = {});

  // Stops at once: connections are cut.
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  // Differs from the requested port if that was 0.
  int port() const { return sockets_->port(); }

 private:
  class Http;

  MetricsEndpoint(std::unique_ptr<ListeningSockets> sockets, Page page, MetricsAccess access,
                  int wake);

  // Starts another instance of the library when the certificates have changed. Open connections
  // stay with the old one.
  void TakeCertificates();
  void Run();

  // Accepts waiting connections. False if the process has no descriptor for them.
  bool Accept(int listening);

  const std::unique_ptr<ListeningSockets> sockets_;
  const Page page_;
  const MetricsAccess access_;
  std::vector<std::unique_ptr<Http>> http_;  // the thread's, while that runs; the last one accepts
  const int wake_;                           // an eventfd: readable when it is time to stop
  std::thread thread_;
};

}  // namespace castor::server
