#include "server/metrics/metrics_endpoint.h"

#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "engine/base/error.h"
#include "server/logging.h"

namespace castor::server {
namespace {

// A connection that asks for nothing for this long is closed.
constexpr std::chrono::seconds kIdle{5};

// Connections at a time: far more than there are scrapers, and at most an eighth of the process's
// descriptors.
constexpr int64_t kMaxConnections = 64;

// Whether a scraper with this header Accept-Encoding takes gzip.
bool TakesGzip(std::string_view accept_encoding) {
  std::string plain;
  for (const char c : accept_encoding) {
    if (c != ' ' && c != '\t') plain.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
  }
  for (const std::string& coding : std::vector<std::string>(absl::StrSplit(plain, ','))) {
    if (coding == "gzip") return true;
    // A weight of 0 to 1; 0 is a refusal.
    if (coding.starts_with("gzip;q=")) return coding.find_first_not_of("0.", 7) != coding.npos;
  }
  return false;
}

std::string Gzip(std::string_view page) {
  constexpr int kGzipWindow = 15 + 16, kMemory = 8;
  z_stream stream{};
  const int begun =
      deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY);
  if (begun != Z_OK) throw std::bad_alloc();
  std::string packed(deflateBound(&stream, page.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(page.data()));
  stream.avail_in = static_cast<uInt>(page.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);  // it has room for all
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

int64_t ConnectionLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxConnections;
  return std::clamp<int64_t>(static_cast<int64_t>(limit.rlim_cur / 8), 2, kMaxConnections);
}

// One scrape. It is answered without its body.
class Scrape final : public http::Exchange {
 public:
  Scrape(const MetricsEndpoint::Page& page, const MetricsAccess& access, http::Header header,
         std::shared_ptr<http::Responder> responder)
      : page_(page),
        access_(access),
        header_(std::move(header)),
        responder_(std::move(responder)) {}

  std::optional<http::Answer> Begin(int64_t) override {
    const auto text = [](int status, std::string body) {
      return http::Answer{.status = status, .content_type = "text/plain", .body = std::move(body)};
    };
    if (header_.path != "/metrics") return text(404, "castor-server: see /metrics\n");
    if (header_.method != "GET" && header_.method != "HEAD") {
      http::Answer answer = text(405, "");
      answer.fields = {{"Allow", "GET, HEAD"}};
      return answer;
    }
    if (access_.authorize) {
      const absl::Status allowed = access_.authorize(Joined("authorization"), header_.peer);
      const std::string why = std::string(allowed.message()) + "\n";
      if (absl::IsPermissionDenied(allowed)) return text(403, why);
      if (!allowed.ok()) {
        http::Answer answer = text(401, why);
        answer.fields = {{"WWW-Authenticate", "Basic realm=\"castor\""}};
        return answer;
      }
    }
    return std::nullopt;
  }

  std::optional<http::Answer> Hold(int64_t) override { return http::Answer{.status = 413}; }

  void OnBody(std::string) override {
    try {
      http::Answer answer{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = page_()};
      if (TakesGzip(Joined("accept-encoding"))) {
        answer.body = Gzip(answer.body);
        answer.fields = {{"Content-Encoding", "gzip"}};
      }
      responder_->Respond(std::move(answer));
    } catch (const std::exception& error) {
      LogError("cannot collect metrics", {{"error", error.what()}});
      responder_->Close();
    }
  }

  void OnGone() override {}

 private:
  // Several headers of one name are joined as HTTP joins them. Two Authorization headers then match
  // no credential, as they should: a proxy in front may have checked either one.
  std::string Joined(std::string_view name) const {
    std::string joined;
    int count = 0;
    for (const auto& [field, value] : header_.fields) {
      if (field == name) joined += (count++ == 0 ? "" : ", ") + value;
    }
    return joined;
  }

  const MetricsEndpoint::Page& page_;
  const MetricsAccess& access_;
  const http::Header header_;
  const std::shared_ptr<http::Responder> responder_;
};

}  // namespace

MetricsEndpoint::MetricsEndpoint(Page page, MetricsAccess access)
    : page_(std::move(page)),
      access_(std::move(access)),
      connections_({.total = ConnectionLimit(),
                    .per_host = ConnectionLimit(),
                    .new_connections = ConnectionLimit() / 2,
                    .first_call = kIdle},
                   nullptr) {}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(const std::string& listen,
                                                                        Page page,
                                                                        MetricsAccess access,
                                                                        Periodic& periodic) {
  std::unique_ptr<MetricsEndpoint> endpoint(
      new MetricsEndpoint(std::move(page), std::move(access)));
  auto listener = http::Listener::Open(
      {.address = listen,
       .handshake = kIdle,
       .idle = kIdle,
       .tls_min_version = endpoint->access_.tls_min_version,
       .ask_for_certificates = false},
      endpoint->access_.certificates,
      [raw = endpoint.get()](http::Header header, std::shared_ptr<http::Responder> responder) {
        raw->connections_.ForCall(header.peer);  // it is not a new one any more
        return std::make_shared<Scrape>(raw->page_, raw->access_, std::move(header),
                                        std::move(responder));
      },
      endpoint->connections_, nullptr);
  if (!listener.ok()) {
    return MakeError(Reason::kInternal,
                     "cannot serve metrics: " + std::string(listener.status().message()));
  }
  endpoint->listener_ = *std::move(listener);
  endpoint->watch_.emplace(periodic, Connections::kWatchEvery, [raw = endpoint.get()] {
    return raw->connections_.Watch(std::chrono::steady_clock::now());
  });
  return endpoint;
}

MetricsEndpoint::~MetricsEndpoint() = default;

}  // namespace castor::server
