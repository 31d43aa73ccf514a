// Reads /metrics of servers over HTTP or HTTPS, by libcurl.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/metrics/page.h"
#include "client/tls.h"

namespace castor::client {

// Where a page is.
struct MetricsAddress {
  std::string url;   // http://HOST:PORT/metrics
  std::string host;  // without brackets
  std::string port;
  bool tls = false;
  std::string connect_to{};  // where the URL's host is not what to connect to; see MetricsRequest
};

// Of HOST:PORT or HOST, whose port is 9464, over HTTPS if `tls`; or of a URL, which says that
// itself. The path is /metrics unless a URL has another. Over HTTPS, the certificate is for
// `server_name`, if that is not empty. INVALID_ARGUMENT for anything else.
absl::StatusOr<MetricsAddress> ParseMetricsAddress(const std::string& text, bool tls,
                                                   const std::string& server_name = "");

// "HOST:PORT", with brackets around an IPv6 address.
std::string JoinHostPort(const std::string& host, const std::string& port);

// What a page is asked for with.
struct MetricsRequest {
  std::string url;
  std::string connect_to{};     // HOST:PORT to connect to instead of the URL's; empty: that
  std::string authorization{};  // header; empty: none
};

struct MetricsAnswer {
  size_t id = 0;
  absl::StatusOr<MetricsPage> page;
  std::chrono::steady_clock::time_point when;  // it was here
};

// Asks several servers at once, without a thread, and keeps its connections. Not thread-safe.
class MetricsFetcher {
 public:
  using Duration = std::chrono::milliseconds;

  // The files of `tls` are read when a connection is made; its server_name is the URL's to say. A
  // page that is not here after `patience` is an error.
  MetricsFetcher(TlsOptions tls, Duration patience);
  ~MetricsFetcher();
  MetricsFetcher(const MetricsFetcher&) = delete;
  MetricsFetcher& operator=(const MetricsFetcher&) = delete;

  // The answer will carry `id`.
  void Start(size_t id, const MetricsRequest& request);

  // How many have not been answered.
  size_t pending() const;

  // Waits until there is an answer, a descriptor of `also` (-1: none) can be read, or `longest` has
  // passed. Returns the answers: errors are UNAVAILABLE, or UNAUTHENTICATED and PERMISSION_DENIED
  // with what the server says; the page is cut off as an error beyond 16 MiB.
  std::vector<MetricsAnswer> Wait(Duration longest, const std::vector<int>& also = {});

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// One page over HTTP, of HOST:PORT or a URL, within 5 s; empty if it does not come. Blocks.
MetricsPage FetchMetrics(const std::string& address);

}  // namespace castor::client
