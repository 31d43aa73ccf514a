#include "client/metrics/fetch.h"

#include <curl/curl.h>

#include <list>
#include <utility>

#include "absl/status/status.h"

namespace castor::client {
namespace {

using std::chrono::steady_clock;

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

class MetricsFetcher::Impl {
 public:
  Impl(TlsOptions tls, Duration patience)
      : tls_(std::move(tls)), patience_(patience), multi_(curl_multi_init(), curl_multi_cleanup) {}

  ~Impl() {
    for (Transfer& transfer : transfers_) {
      curl_multi_remove_handle(multi_.get(), transfer.easy.get());
    }
  }

  void Start(size_t id, const MetricsRequest& request) {
    Transfer& transfer = transfers_.emplace_back(id, request);
    CURL* const easy = transfer.easy.get();
    curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");  // as Prometheus does; a token stays between us
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(patience_.count()));
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, transfer.connect_to.get());
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.headers.get());
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, Append);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer.error);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, &transfer);
    SetTls(easy);
    curl_multi_add_handle(multi_.get(), easy);
  }

  size_t pending() const { return transfers_.size(); }

  std::vector<MetricsAnswer> Wait(Duration longest, const std::vector<int>& also) {
    int running = 0;
    curl_multi_perform(multi_.get(), &running);
    std::vector<MetricsAnswer> answers = Ended();
    if (!answers.empty()) return answers;
    std::vector<curl_waitfd> waits;
    for (const int descriptor : also) {
      if (descriptor >= 0)
        waits.push_back({.fd = descriptor, .events = CURL_WAIT_POLLIN, .revents = 0});
    }
    curl_multi_poll(multi_.get(), waits.data(), static_cast<unsigned>(waits.size()),
                    static_cast<int>(longest.count()), nullptr);
    curl_multi_perform(multi_.get(), &running);
    return Ended();
  }

 private:
  // One page on its way.
  struct Transfer {
    Transfer(size_t id_, const MetricsRequest& request)
        : id(id_),
          connect_to(ListOf(request.connect_to.empty() ? "" : "::" + request.connect_to)),
          headers(ListOf(
              request.authorization.empty() ? "" : "Authorization: " + request.authorization)) {}

    size_t id;
    Easy easy{curl_easy_init(), curl_easy_cleanup};
    List connect_to, headers;
    std::string page{};
    bool too_long = false;
    char error[CURL_ERROR_SIZE] = "";
  };

  static size_t Append(char* data, size_t size, size_t count, void* context) {
    auto& transfer = *static_cast<Transfer*>(context);
    transfer.too_long = transfer.page.size() + size * count > kMaxPage;
    if (transfer.too_long) return 0;  // curl gives up
    transfer.page.append(data, size * count);
    return size * count;
  }

  static absl::StatusOr<MetricsPage> ResultOf(const Transfer& transfer, CURLcode code) {
    if (transfer.too_long) return absl::UnavailableError("a page of more than 16 MiB");
    if (code != CURLE_OK) {
      const std::string general = curl_easy_strerror(code), special = transfer.error;
      return absl::UnavailableError(special.empty() ? general : special);
    }
    long status = 0;
    curl_easy_getinfo(transfer.easy.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) return ParseMetrics(transfer.page);
    std::string reason = transfer.page.substr(0, kMaxReason);
    while (!reason.empty() && reason.back() == '\n') reason.pop_back();
    const std::string text =
        "HTTP status " + std::to_string(status) + (reason.empty() ? "" : ": " + reason);
    if (status == 401) return absl::UnauthenticatedError(text);
    if (status == 403) return absl::PermissionDeniedError(text);
    return absl::UnavailableError(text);
  }

  void SetTls(CURL* easy) const {
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L);  // files change
    if (const std::string authorities = AuthoritiesOf(tls_); !authorities.empty()) {
      curl_easy_setopt(easy, CURLOPT_CAINFO, authorities.c_str());
      curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
    }
    if (!tls_.certificate_file.empty()) {
      curl_easy_setopt(easy, CURLOPT_SSLCERT, tls_.certificate_file.c_str());
      curl_easy_setopt(easy, CURLOPT_SSLKEY, tls_.key_file.c_str());
    }
  }

  std::vector<MetricsAnswer> Ended() {
    std::vector<MetricsAnswer> answers;
    int left = 0;
    while (CURLMsg* const message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      Transfer* transfer = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      curl_multi_remove_handle(multi_.get(), message->easy_handle);
      answers.push_back(
          {.id = transfer->id, .page = ResultOf(*transfer, code), .when = steady_clock::now()});
      transfers_.remove_if([&](const Transfer& each) { return &each == transfer; });
    }
    return answers;
  }

  const TlsOptions tls_;
  const Duration patience_;
  const std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi_;
  std::list<Transfer> transfers_;  // their addresses are curl's
};

MetricsFetcher::MetricsFetcher(TlsOptions tls, Duration patience)
    : impl_(std::make_unique<Impl>(std::move(tls), patience)) {}

MetricsFetcher::~MetricsFetcher() = default;

void MetricsFetcher::Start(size_t id, const MetricsRequest& request) { impl_->Start(id, request); }

size_t MetricsFetcher::pending() const { return impl_->pending(); }

std::vector<MetricsAnswer> MetricsFetcher::Wait(Duration longest, const std::vector<int>& also) {
  return impl_->Wait(longest, also);
}

MetricsPage FetchMetrics(const std::string& address) {
  const auto where = ParseMetricsAddress(address, /*tls=*/false);
  if (!where.ok()) return {};
  constexpr std::chrono::seconds kPatience{5};
  MetricsFetcher fetcher({}, kPatience);
  fetcher.Start(0, {.url = where->url});
  while (fetcher.pending() > 0) {
    for (MetricsAnswer& answer : fetcher.Wait(kPatience)) {
      if (answer.page.ok()) return *std::move(answer.page);
    }
  }
  return {};
}

}  // namespace castor::client
