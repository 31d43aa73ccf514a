#include "client/metrics/fetch.h"

#include <curl/curl.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace castor::client {
namespace {

constexpr size_t kMaxPage = size_t{16} << 20;
constexpr size_t kMaxReason = 200;  // bytes of an error's page
constexpr const char* kPort = "9464";

using CurlUrl = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;
using Easy = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using List = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

std::string PartOf(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  const std::unique_ptr<char, decltype(&curl_free)> owner(text, curl_free);
  return text;
}

List ListOf(const std::string& line) {
  return {line.empty() ? nullptr : curl_slist_append(nullptr, line.c_str()), curl_slist_free_all};
}

}  // namespace

absl::StatusOr<MetricsAddress> ParseMetricsAddress(const std::string& text, bool tls,
                                                   const std::string& server_name) {
  const bool complete = text.find("://") != std::string::npos;
  const CurlUrl url(curl_url(), curl_url_cleanup);
  const std::string given = complete ? text : (tls ? "https://" : "http://") + text;
  const auto wrong = absl::InvalidArgumentError("'" + text + "' is not HOST:PORT or a URL");
  if (curl_url_set(url.get(), CURLUPART_URL, given.c_str(), 0) != CURLUE_OK) return wrong;
  const std::string scheme = PartOf(url.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return wrong;
  const std::string path = PartOf(url.get(), CURLUPART_PATH);
  if (!complete && path != "/") return wrong;
  if (path.empty() || path == "/") curl_url_set(url.get(), CURLUPART_PATH, "/metrics", 0);
  MetricsAddress address;
  address.tls = scheme == "https";
  if (!complete && PartOf(url.get(), CURLUPART_PORT).empty()) {
    curl_url_set(url.get(), CURLUPART_PORT, kPort, 0);
  }
  address.port = PartOf(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  address.host = PartOf(url.get(), CURLUPART_HOST);
  if (address.host.starts_with('[')) {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  if (address.tls && !server_name.empty()) {
    address.connect_to = JoinHostPort(address.host, address.port);
    if (curl_url_set(url.get(), CURLUPART_HOST, server_name.c_str(), 0) != CURLUE_OK) {
      return absl::InvalidArgumentError("'" + server_name + "' is not a server name");
    }
  }
  address.url = PartOf(url.get(), CURLUPART_URL);
  if (address.host.empty() || address.url.empty()) return wrong;
  return address;
}

std::string JoinHostPort(const std::string& host, const std::string& port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

// A page in transfer.
struct MetricsFetcher::Transfer {
  Transfer(const MetricsAddress& address, Done done_)
      : done(std::move(done_)),
        connect_to(ListOf(address.connect_to.empty() ? "" : "::" + address.connect_to)),
        headers(ListOf(address.authorization.empty() ? ""
                                                     : "Authorization: " + address.authorization)) {
  }

  static size_t Append(char* data, size_t size, size_t count, void* context) {
    auto& transfer = *static_cast<Transfer*>(context);
    transfer.too_long = transfer.page.size() + size * count > kMaxPage;
    if (transfer.too_long) return 0;  // curl gives up
    transfer.page.append(data, size * count);
    return size * count;
  }

  // Refuses compression, which was not asked for: a few bytes could expand to any size.
  static size_t CheckHeader(char* data, size_t size, size_t count, void* context) {
    const absl::string_view line(data, size * count);
    const size_t colon = std::min(line.find(':'), line.size());
    const absl::string_view name = line.substr(0, colon);
    if (!absl::EqualsIgnoreCase(name, "transfer-encoding") &&
        !absl::EqualsIgnoreCase(name, "content-encoding")) {
      return line.size();
    }
    const absl::string_view coding = absl::StripAsciiWhitespace(line.substr(colon + 1));
    for (const char* harmless : {"chunked", "identity"}) {
      if (absl::EqualsIgnoreCase(coding, harmless)) return line.size();
    }
    static_cast<Transfer*>(context)->compressed = true;
    return 0;
  }

  absl::StatusOr<MetricsPage> Result(CURLcode code) const {
    if (compressed) {
      return absl::UnavailableError("the page is compressed, which was not asked for");
    }
    if (too_long) return absl::UnavailableError("the page exceeds 16 MiB");
    if (code != CURLE_OK) {
      return absl::UnavailableError(error[0] != '\0' ? error : curl_easy_strerror(code));
    }
    long status = 0;
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) return ParseMetrics(page);
    std::string reason = page.substr(0, kMaxReason);
    while (!reason.empty() && reason.back() == '\n') reason.pop_back();
    const std::string text =
        "HTTP status " + std::to_string(status) + (reason.empty() ? "" : ": " + reason);
    if (status == 401) return absl::UnauthenticatedError(text);
    return status == 403 ? absl::PermissionDeniedError(text) : absl::UnavailableError(text);
  }

  Done done;
  Easy easy{curl_easy_init(), curl_easy_cleanup};
  List connect_to, headers;
  std::string page{};
  bool too_long = false, compressed = false;
  char error[CURL_ERROR_SIZE] = "";
};

MetricsFetcher::MetricsFetcher(TlsOptions tls, Duration timeout)
    : tls_(std::move(tls)), timeout_(timeout), multi_(curl_multi_init(), curl_multi_cleanup) {}

MetricsFetcher::~MetricsFetcher() {
  for (Transfer& transfer : transfers_) {
    curl_multi_remove_handle(multi_.get(), transfer.easy.get());
  }
}

void MetricsFetcher::Start(const MetricsAddress& address, Done done) {
  Transfer& transfer = transfers_.emplace_back(address, std::move(done));
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(transfer.easy.get(), option, value);
  };
  set(CURLOPT_URL, address.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOPROXY, "*");  // like Prometheus; no proxy sees the token
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_.count()));
  set(CURLOPT_CONNECT_TO, transfer.connect_to.get());
  set(CURLOPT_HTTPHEADER, transfer.headers.get());
  set(CURLOPT_HEADERFUNCTION, Transfer::CheckHeader);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, Transfer::Append);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_ERRORBUFFER, transfer.error);
  set(CURLOPT_PRIVATE, &transfer);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(CURLOPT_CA_CACHE_TIMEOUT, 0L);  // files may change
  if (const std::string authorities = AuthoritiesOf(tls_); !authorities.empty()) {
    set(CURLOPT_CAINFO, authorities.c_str());
    set(CURLOPT_CAPATH, nullptr);
  }
  if (!tls_.certificate_file.empty()) {
    set(CURLOPT_SSLCERT, tls_.certificate_file.c_str());
    set(CURLOPT_SSLKEY, tls_.key_file.c_str());
  }
  curl_multi_add_handle(multi_.get(), transfer.easy.get());
}

void MetricsFetcher::Wait(Duration longest) {
  int left = 0;
  curl_multi_perform(multi_.get(), &left);
  curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(longest.count()), nullptr);
  curl_multi_perform(multi_.get(), &left);
  while (CURLMsg* const message = curl_multi_info_read(multi_.get(), &left)) {
    const CURLcode code = message->data.result;
    Transfer* transfer = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    curl_multi_remove_handle(multi_.get(), message->easy_handle);
    transfer->done(transfer->Result(code));
    transfers_.remove_if([&](const Transfer& each) { return &each == transfer; });
  }
}

MetricsPage FetchMetrics(const std::string& address) {
  MetricsPage page;
  const auto where = ParseMetricsAddress(address, /*tls=*/false);
  if (!where.ok()) return page;
  constexpr std::chrono::seconds kTimeout{5};
  MetricsFetcher fetcher({}, kTimeout);
  fetcher.Start(*where, [&](absl::StatusOr<MetricsPage> answer) {
    if (answer.ok()) page = *std::move(answer);
  });
  while (fetcher.pending()) fetcher.Wait(kTimeout);
  return page;
}

}  // namespace castor::client
