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

// The address of a page, and the credentials for it.
struct MetricsAddress {
  std::string url;   // http://HOST:PORT/metrics
  std::string host;  // without brackets
  std::string port;
  bool tls = false;
  std::string connect_to{};     // HOST:PORT to connect to; empty: the URL's
  std::string authorization{};  // header; empty: none
};

// Parses HOST:PORT, HOST (port 9464), or a URL. `tls` chooses HTTPS unless a URL says which. The
// path is /metrics unless a URL has another. Over HTTPS, the certificate must be for `server_name`
// if that is not empty. INVALID_ARGUMENT for anything else.
absl::StatusOr<MetricsAddress> ParseMetricsAddress(const std::string& text, bool tls,
                                                   const std::string& server_name = "");

// "HOST:PORT", with brackets around an IPv6 address.
std::string JoinHostPort(const std::string& host, const std::string& port);

// Fetches pages of several servers at once, without a thread. Not thread-safe.
class MetricsFetcher {
 public:
  using Duration = std::chrono::milliseconds;
  // Errors are UNAUTHENTICATED and PERMISSION_DENIED with the server's text, and UNAVAILABLE for
  // the rest, such as a page beyond 16 MiB or one that takes longer than `timeout`.
  using Done = std::function<void(absl::StatusOr<MetricsPage> page)>;

  // Each connection reads the files of `tls`. Its server_name is not used: the address has it.
  MetricsFetcher(TlsOptions tls, Duration timeout);
  ~MetricsFetcher();
  MetricsFetcher(const MetricsFetcher&) = delete;
  MetricsFetcher& operator=(const MetricsFetcher&) = delete;

  // Wait() calls `done`, which must not start another fetch.
  void Start(const MetricsAddress& address, Done done);

  bool pending() const { return !transfers_.empty(); }

  // Waits until something arrives or `longest` has passed.
  void Wait(Duration longest);

 private:
  struct Transfer;

  const TlsOptions tls_;
  const Duration timeout_;
  const std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi_;
  std::list<Transfer> transfers_;  // curl keeps pointers to them
};

// Fetches the page of HOST:PORT or a URL over HTTP, within 5 s; empty if it does not come. Blocks.
MetricsPage FetchMetrics(const std::string& address);

}  // namespace castor::client
