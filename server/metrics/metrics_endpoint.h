// The HTTP endpoint that Prometheus scrapes, plain or over TLS: a listener with one page.
//
// It has few connections of its own, so that scrapers and strangers who find the port take nothing
// from callers; a connection without a request gives way to a new one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/http/listener.h"
#include "server/lifecycle/periodic.h"

namespace castor::server {

// The endpoint's certificates, and the check of those who scrape.
struct MetricsAccess {
  const LiveCertificates* certificates = nullptr;  // null: plain HTTP; must outlive the endpoint
  TlsVersion tls_min_version = TlsVersion::k12;
  // Decides by the header `authorization` (empty: none) and the peer's address whether the page may
  // be read: OK, UNAUTHENTICATED or PERMISSION_DENIED. No function: every scrape is allowed. Runs
  // on the endpoint's thread.
  std::function<absl::Status(std::string_view authorization, std::string_view peer)> authorize{};
};

class MetricsEndpoint {
 public:
  using Page = std::function<std::string()>;

  // Serves what `page` returns, text format 0.0.4, as /metrics at "HOST:PORT". `page` is called on
  // the endpoint's thread at each scrape, until the destructor returns. `periodic` must
  // outlive it.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& listen,
                                                                Page page, MetricsAccess access,
                                                                Periodic& periodic);

  // Stops at once: connections are cut.
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  // Differs from the requested port if that was 0.
  int port() const { return listener_->port(); }

 private:
  MetricsEndpoint(Page page, MetricsAccess access);

  const Page page_;
  const MetricsAccess access_;
  Connections connections_;
  std::unique_ptr<http::Listener> listener_;  // it uses everything above
  std::optional<Periodic::Task> watch_;       // of the connections
};

}  // namespace castor::server
