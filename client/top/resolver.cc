#include "client/top/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "client/metrics/fetch.h"

namespace castor::top {

// By glibc's own threads, so that nothing here waits for a name server.
struct Resolver::Lookup {
  std::string host, port;
  addrinfo hints{};
  gaicb request{};
};

Resolver::Resolver() = default;
Resolver::Resolver(Resolver&&) noexcept = default;
Resolver& Resolver::operator=(Resolver&&) noexcept = default;

Resolver::~Resolver() {
  if (lookup_ == nullptr || gai_error(&lookup_->request) != EAI_INPROGRESS) return;
  if (gai_cancel(&lookup_->request) == EAI_CANCELED) return;
  // A thread of glibc's still writes there.
  static std::vector<std::unique_ptr<Lookup>>& left = *new std::vector<std::unique_ptr<Lookup>>();
  left.push_back(std::move(lookup_));
}

void Resolver::Start(const std::string& host, const std::string& port) {
  lookup_ = std::make_unique<Lookup>();
  lookup_->host = host;
  lookup_->port = port;
  lookup_->hints.ai_socktype = SOCK_STREAM;
  lookup_->request.ar_name = lookup_->host.c_str();
  lookup_->request.ar_service = lookup_->port.c_str();
  lookup_->request.ar_request = &lookup_->hints;
  gaicb* requests[] = {&lookup_->request};
  // Of what cannot be started, gai_error says so.
  (void)getaddrinfo_a(GAI_NOWAIT, requests, 1, nullptr);
}

std::optional<absl::StatusOr<std::vector<std::string>>> Resolver::Poll() {
  if (lookup_ == nullptr) return std::nullopt;
  const int error = gai_error(&lookup_->request);
  if (error == EAI_INPROGRESS) return std::nullopt;
  const std::unique_ptr<Lookup> lookup = std::move(lookup_);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(lookup->request.ar_result,
                                                                freeaddrinfo);
  std::vector<std::string> four, six;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    char host[NI_MAXHOST];
    if (getnameinfo(each->ai_addr, each->ai_addrlen, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      continue;
    }
    (each->ai_family == AF_INET6 ? six : four).push_back(client::JoinHostPort(host, lookup->port));
  }
  std::vector<std::string>& servers = six.size() > four.size() ? six : four;
  std::sort(servers.begin(), servers.end());
  servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
  if (servers.size() < 2) servers.clear();
  return std::move(servers);
}

bool IsNumericHost(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  return inet_pton(AF_INET, host.c_str(), &four) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

}  // namespace castor::top
