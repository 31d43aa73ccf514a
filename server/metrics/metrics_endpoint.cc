#include "server/metrics/metrics_endpoint.h"

#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <list>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "engine/base/error.h"
#include "server/logging.h"

namespace castor::server {
namespace {

// A connection that sends nothing and takes nothing for this long is closed.
constexpr unsigned int kIdleSeconds = 5;

// Connections at a time: far more than there are scrapers, and at most an eighth of the process's
// descriptors.
constexpr int kMaxConnections = 64;

// Connections accepted at once, before the open ones are served.
constexpr int kAcceptsInARow = 16;

// The memory for a request's header.
constexpr size_t kConnectionMemory = 16 << 10;

// How long to leave new connections waiting when there is no descriptor for them.
constexpr int kScarceMs = 100;

// As the gRPC listener has them.
constexpr char kTlsVersions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

// The address that a scrape comes from.
std::string PeerOf(MHD_Connection* connection) {
  const auto* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  char host[NI_MAXHOST];
  const bool named = info != nullptr && info->client_addr != nullptr &&
                     getnameinfo(info->client_addr, sizeof(sockaddr_in6), host, sizeof(host),
                                 nullptr, 0, NI_NUMERICHOST) == 0;
  return named ? host : "unknown";
}

// A header. Several of the same name are joined as HTTP joins them. Two Authorization headers then
// match no credential, as they should: a proxy in front may have checked either one.
struct Header {
  const char* const name;
  int count = 0;
  std::string joined{};
};

Header HeaderOf(MHD_Connection* connection, const char* name) {
  Header found{name};
  MHD_get_connection_values(
      connection, MHD_HEADER_KIND,
      [](void* of, MHD_ValueKind, const char* key, const char* value) {
        auto& [name, count, joined] = *static_cast<Header*>(of);
        if (strcasecmp(key, name) != 0) return MHD_YES;
        if (count++ > 0) joined += ", ";
        joined += value == nullptr ? "" : value;
        return MHD_YES;
      },
      &found);
  return found;
}

// Whether a proxy in front may disagree on where the request's body ends, and so on the next
// request: several headers give the body's length, or one gives it in an unusual form.
bool IsAmbiguous(MHD_Connection* connection) {
  int lengths = 0;
  MHD_get_connection_values(
      connection, MHD_HEADER_KIND,
      [](void* count, MHD_ValueKind, const char* key, const char* value) {
        const std::string_view name(key), text(value == nullptr ? "" : value);
        const bool length = strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
        const bool odd = name.find_first_of(" \t") != name.npos ||
                         (length && text.find_first_not_of("0123456789") != text.npos);
        const bool counts = length || strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
        *static_cast<int*>(count) += odd ? 2 : counts ? 1 : 0;
        return MHD_YES;
      },
      &lengths);
  return lengths > 1;
}

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

// The path of a request's target, which is a whole URL where a client means a proxy.
std::string_view PathOf(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (strncasecmp(target.data(), scheme.data(), scheme.size()) != 0) continue;
    target.remove_prefix(scheme.size());
    return target.substr(std::min(target.find('/'), target.size()));
  }
  return target;
}

int ConnectionLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxConnections;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 8, 2, kMaxConnections));
}

using Headers = std::initializer_list<std::pair<const char*, const char*>>;

MHD_Result Answer(MHD_Connection* connection, unsigned int status, Headers headers,
                  std::string_view body) {
  MHD_Response* response = MHD_create_response_from_buffer(
      body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_Result result = MHD_YES;
  for (const auto& [header, value] : headers) {
    if (result == MHD_YES) result = MHD_add_response_header(response, header, value);
  }
  if (result == MHD_YES) result = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return result;
}

}  // namespace

// The HTTP library. It has no thread here: Run, on the endpoint's thread, drives it.
class MetricsEndpoint::Http {
 public:
  // `certificates`: null for plain HTTP.
  Http(const Page& page, const MetricsAccess& access,
       std::shared_ptr<const Certificates> certificates)
      : page_(page), access_(access), certificates_(std::move(certificates)) {}
  ~Http() {
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }

  bool Start() {
    std::vector<MHD_OptionItem> tls;
    unsigned int flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET;
    if (certificates_ != nullptr) {
      flags |= MHD_USE_TLS;
      const auto text = [](const char* it) { return const_cast<char*>(it); };
      tls.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, text(certificates_->chain.c_str())});
      tls.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, text(certificates_->key.c_str())});
      tls.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, text(kTlsVersions)});
    }
    tls.push_back({MHD_OPTION_END, 0, nullptr});
    daemon_ = MHD_start_daemon(
        flags, 0, nullptr, nullptr, &OnRequest, this, MHD_OPTION_CONNECTION_LIMIT,
        static_cast<unsigned int>(limit_), MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionMemory, MHD_OPTION_NOTIFY_CONNECTION,
        &OnConnection, this, MHD_OPTION_ARRAY, tls.data(), MHD_OPTION_END);
    return daemon_ != nullptr;
  }

  const std::shared_ptr<const Certificates>& certificates() const { return certificates_; }
  bool idle() const { return silent_.empty(); }

  // Readable when Work has something to do.
  int descriptor() const {
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  }

  // The time until Work has something to do even so, in ms; -1: never.
  int timeout() const {
    MHD_UNSIGNED_LONG_LONG timeout = 0;
    if (MHD_get_timeout(daemon_, &timeout) != MHD_YES) return -1;
    return static_cast<int>(std::min<MHD_UNSIGNED_LONG_LONG>(timeout, kIdleSeconds * 1000));
  }

  // Does the pending work without waiting.
  void Work() { MHD_run(daemon_); }

  // Takes the connection over.
  void Add(int descriptor, const sockaddr_storage& peer, socklen_t length) {
    if (static_cast<int>(silent_.size()) >= limit_) {
      shutdown(silent_.front().descriptor, SHUT_RDWR);
      Work();  // closes it
    }
    MHD_add_connection(daemon_, descriptor, reinterpret_cast<const sockaddr*>(&peer), length);
  }

 private:
  struct Open {
    const MHD_Connection* connection;
    int descriptor;
  };

  static void OnConnection(void* self, MHD_Connection* connection, void** /*context*/,
                           MHD_ConnectionNotificationCode what) {
    auto& open = static_cast<Http*>(self)->silent_;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
      open.remove_if([&](const Open& it) { return it.connection == connection; });
      return;
    }
    const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    open.push_back({connection, info->connect_fd});
  }

  // The library calls this when the header has arrived, and again when the request is complete.
  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url,
                              const char* method, const char* /*version*/, const char* /*upload*/,
                              size_t* upload_size, void** context) {
    const std::string_view name(method);
    const bool reads = name == "GET" || name == "HEAD";
    // Answering after the header alone ends the connection, which is right if a body would follow.
    if (std::exchange(*context, self) == nullptr) {
      if (IsAmbiguous(connection)) {
        return Answer(connection, MHD_HTTP_BAD_REQUEST, {{"Content-Type", "text/plain"}},
                      "send Content-Length, a number, or Transfer-Encoding, once\n");
      }
      if (reads) return MHD_YES;
    }
    if (*upload_size != 0) return MHD_NO;  // closes it
    return static_cast<Http*>(self)->Handle(connection, PathOf(url), reads);
  }

  MHD_Result Handle(MHD_Connection* connection, std::string_view url, bool reads) {
    const auto asking = std::find_if(silent_.begin(), silent_.end(), [&](const Open& open) {
      return open.connection == connection;
    });
    if (asking != silent_.end()) silent_.splice(silent_.end(), silent_, asking);
    if (url != "/metrics") {
      return Answer(connection, MHD_HTTP_NOT_FOUND, {{"Content-Type", "text/plain"}},
                    "castor-server: see /metrics\n");
    }
    if (!reads) {
      return Answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, {{"Allow", "GET, HEAD"}}, "");
    }
    if (access_.authorize) {
      const absl::Status allowed = access_.authorize(
          HeaderOf(connection, MHD_HTTP_HEADER_AUTHORIZATION).joined, PeerOf(connection));
      const std::string text = std::string(allowed.message()) + "\n";
      if (absl::IsPermissionDenied(allowed)) {
        return Answer(connection, MHD_HTTP_FORBIDDEN, {{"Content-Type", "text/plain"}}, text);
      }
      if (!allowed.ok()) {
        return Answer(connection, MHD_HTTP_UNAUTHORIZED,
                      {{"WWW-Authenticate", "Basic realm=\"castor\""}}, text);
      }
    }
    try {  // the library is C: no exception may pass through it
      const std::pair type("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
      const std::string page = page_();
      if (!TakesGzip(HeaderOf(connection, MHD_HTTP_HEADER_ACCEPT_ENCODING).joined)) {
        return Answer(connection, MHD_HTTP_OK, {type}, page);
      }
      return Answer(connection, MHD_HTTP_OK, {type, {"Content-Encoding", "gzip"}}, Gzip(page));
    } catch (const std::exception& error) {
      LogError("cannot collect metrics", {{"error", error.what()}});
      return MHD_NO;  // closes the connection
    }
  }

  const Page& page_;
  const MetricsAccess& access_;
  const std::shared_ptr<const Certificates> certificates_;
  const int limit_ = ConnectionLimit();
  MHD_Daemon* daemon_ = nullptr;
  std::list<Open> silent_;  // connections; the one that has been silent longest comes first
};

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(const std::string& listen,
                                                                        Page page,
                                                                        MetricsAccess access) {
  const auto failed = [&](std::string_view cause) {
    return MakeError(Reason::kInternal,
                     "cannot serve metrics at " + listen + ": " + std::string(cause));
  };
  auto sockets = ListeningSockets::Open(listen);
  if (!sockets.ok()) return failed(std::string(sockets.status().message()));
  const int wake = eventfd(0, EFD_CLOEXEC);
  if (wake < 0) return failed(strerror(errno));
  std::unique_ptr<MetricsEndpoint> endpoint(
      new MetricsEndpoint(*std::move(sockets), std::move(page), std::move(access), wake));
  endpoint->TakeCertificates();
  if (endpoint->http_.empty()) return failed("cannot start the HTTP library");
  endpoint->thread_ = std::thread([raw = endpoint.get()] { raw->Run(); });
  return endpoint;
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<ListeningSockets> sockets, Page page,
                                 MetricsAccess access, int wake)
    : sockets_(std::move(sockets)),
      page_(std::move(page)),
      access_(std::move(access)),
      wake_(wake) {}

void MetricsEndpoint::TakeCertificates() {
  std::shared_ptr<const Certificates> now;
  if (access_.certificates != nullptr) now = access_.certificates->current();
  if (!http_.empty() && http_.back()->certificates() == now) return;
  auto http = std::make_unique<Http>(page_, access_, std::move(now));
  if (http->Start()) {
    http_.push_back(std::move(http));
  } else if (!http_.empty()) {
    LogError("the HTTP library refuses the certificates; /metrics keeps the previous ones");
  }
}

MetricsEndpoint::~MetricsEndpoint() {
  if (thread_.joinable()) {
    eventfd_write(wake_, 1);
    thread_.join();
  }
  close(wake_);
}

bool MetricsEndpoint::Accept(int listening) {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    const int connection = accept4(listening, reinterpret_cast<sockaddr*>(&peer), &length,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      http_.back()->Add(connection, peer, length);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    }
  }
  return true;
}

void MetricsEndpoint::Run() {
  pthread_setname_np(pthread_self(), "metrics");
  std::vector<pollfd> waiting;
  bool scarce = false;
  for (;;) {
    waiting = {{wake_, POLLIN, 0}};
    int timeout = -1;
    for (const auto& http : http_) {
      waiting.push_back({http->descriptor(), POLLIN, 0});
      const int own = http->timeout();
      if (own >= 0) timeout = timeout < 0 ? own : std::min(timeout, own);
    }
    const size_t own = waiting.size();
    for (const int listening : sockets_->descriptors()) waiting.push_back({listening, POLLIN, 0});
    // While there is no descriptor for a waiting connection, the socket stays readable; polling it
    // would be a busy loop.
    if (scarce) {
      poll(waiting.data(), own, timeout < 0 ? kScarceMs : std::min(timeout, kScarceMs));
    } else {
      poll(waiting.data(), waiting.size(), timeout);
    }
    if (waiting[0].revents != 0) return;
    const bool before = std::exchange(scarce, false);
    for (size_t i = own; i < waiting.size(); ++i) {
      if (!before && waiting[i].revents == 0) continue;
      TakeCertificates();
      scarce |= !Accept(waiting[i].fd);
    }
    if (scarce && !before) {
      LogWarning("no file descriptor for a new metrics connection; retrying", {});
    }
    for (const auto& http : http_) http->Work();
    std::erase_if(http_, [&](const auto& http) { return http != http_.back() && http->idle(); });
  }
}

}  // namespace castor::server
