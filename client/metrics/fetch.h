// Reads /metrics of servers over HTTP or HTTPS, by libcurl.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/credentials.h"
#include "client/metrics/page.h"

namespace castor::client {

// Where a page is, and what it is asked for with.
struct MetricsAddress {
  std::string url;   // http://HOST:PORT/metrics
  std::string host;  // without brackets
  std::string port;
  bool tls = false;
  std::string connect_to{};     // HOST:PORT to connect to instead of the URL's; empty: that
  std::string authorization{};  // header; empty: none
};

// Of HOST:PORT or HOST, whose port is 9464, over HTTPS if `tls`; or of a URL, which says that
// itself. The path is /metrics unless a URL has another. Over HTTPS, the certificate is for
// `server_name`, if that is not empty. INVALID_ARGUMENT for anything else.
absl::StatusOr<MetricsAddress> ParseMetricsAddress(const std::string& text, bool tls,
                                                   const std::string& server_name = "");

// "HOST:PORT", with brackets around an IPv6 address.
std::string JoinHostPort(const std::string& host, const std::string& port);

// Asks several servers at once, without a thread. Not thread-safe.
class MetricsFetcher {
 public:
  using Duration = std::chrono::milliseconds;
  // Errors are UNAVAILABLE, or UNAUTHENTICATED and PERMISSION_DENIED with what the server says; a
  // page beyond 16 MiB is one, and one that is not here after `timeout`.
  using Done = std::function<void(absl::StatusOr<MetricsPage> page)>;

  // The files of `tls` are read when a connection is made; its server_name is the URL's to say.
  MetricsFetcher(TlsOptions tls, Duration timeout);
  ~MetricsFetcher();
  MetricsFetcher(const MetricsFetcher&) = delete;
  MetricsFetcher& operator=(const MetricsFetcher&) = delete;

  // Wait() will call `done`, which must not start anything.
  void Start(const MetricsAddress& address, Done done);

  bool pending() const { return !transfers_.empty(); }

  // Waits until something arrives or `longest` has passed.
  void Wait(Duration longest);

 private:
  struct Transfer;

  const TlsOptions tls_;
  const Duration timeout_;
  const std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi_;
  std::list<Transfer> transfers_;  // their addresses are curl's
};

// One page over HTTP, of HOST:PORT or a URL, within 5 s; empty if it does not come. Blocks.
MetricsPage FetchMetrics(const std::string& address);

}  // namespace castor::client
