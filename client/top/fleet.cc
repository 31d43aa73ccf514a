#include "client/top/fleet.h"

#include <netdb.h>

#include <algorithm>
#include <utility>

#include "client/cli/security_flags.h"
#include "client/credentials.h"

namespace castor::top {
namespace {

constexpr std::chrono::seconds kTimeout{5}, kLookupInterval{10};

// HOST:PORT of each server behind a name. Empty if there is only one (its addresses of both
// families lead to the same server), or if the lookup fails, which the fetcher will report.
std::vector<std::string> AddressesOf(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  std::vector<std::string> four, six;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return four;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      (each->ai_family == AF_INET6 ? six : four).push_back(client::JoinHostPort(text, port));
    }
  }
  std::vector<std::string>& servers = six.size() > four.size() ? six : four;
  std::sort(servers.begin(), servers.end());
  servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
  if (servers.size() < 2) servers.clear();
  return std::move(servers);
}

bool IsCastorPage(const client::MetricsPage& page) {
  const auto first = page.lower_bound("castor_");
  return first != page.end() && first->first.starts_with("castor_");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Create(const std::vector<std::string>& addresses,
                                                     client::ClientOptions options) {
  const client::TlsOptions files = options.tls.value_or(client::TlsOptions());
  std::list<Source> sources;
  bool tls = false;
  for (const std::string& text : addresses) {
    auto address = client::ParseMetricsAddress(text, options.tls.has_value(), files.server_name);
    if (!address.ok()) return address.status();
    tls = tls || address->tls;
    sources.push_back({.text = text, .address = *std::move(address)});
  }
  if (tls) {
    if (absl::Status status = client::CheckTlsFiles(files); !status.ok()) return status;
  }
  std::unique_ptr<Fleet> fleet(new Fleet(std::move(options), std::move(sources)));
  if (auto header = fleet->token_.Header(); !header.ok()) return header.status();
  return fleet;
}

Fleet::Fleet(client::ClientOptions options, std::list<Source> sources)
    : options_(std::move(options)),
      token_(options_.token, options_.token_file),
      sources_(std::move(sources)),
      fetcher_(options_.tls.value_or(client::TlsOptions()), kTimeout) {}

void Fleet::LookUp(Source* source) {
  source->next_lookup = Clock::now() + kLookupInterval;
  std::vector<std::string> names = AddressesOf(source->address.host, source->address.port);
  const bool several = !names.empty();
  if (!several) names = {source->text};
  // A server that the name no longer has may still drain. Remove it once it no longer answers.
  servers_.remove_if([&](const Server& server) {
    return server.source == source && !server.request_pending && !server.view.rates &&
           std::count(names.begin(), names.end(), server.view.name) == 0;
  });
  for (const std::string& name : names) {
    if (std::any_of(servers_.begin(), servers_.end(), [&](const Server& server) {
          return server.source == source && server.view.name == name;
        })) {
      continue;
    }
    servers_.push_back({.source = source, .view = {.name = name}, .address = source->address});
    if (several) servers_.back().address.connect_to = name;
  }
}

bool Fleet::MaySendToken(const client::MetricsAddress& address) const {
  const std::string target = client::JoinHostPort(address.host, address.port);
  return address.tls || options_.allow_plaintext_token || client::IsOnThisMachine(target);
}

void Fleet::StartRound() {
  for (Source& source : sources_) {
    if (Clock::now() >= source.next_lookup) LookUp(&source);
  }
  for (Server& server : servers_) {
    if (std::exchange(server.request_pending, true)) continue;
    const auto header = token_.Header();
    const bool send = header.ok() && MaySendToken(server.address);
    server.address.authorization = send ? *header : "";
    fetcher_.Start(server.address, [this, &server](absl::StatusOr<client::MetricsPage> page) {
      HandlePage(std::move(page), &server);
    });
  }
}

void Fleet::HandlePage(absl::StatusOr<client::MetricsPage> page, Server* server) {
  server->request_pending = false;
  if (page.ok() && !IsCastorPage(*page)) {
    page = absl::UnavailableError("the page is not the /metrics of a castor-server");
  }
  server->error = page.status();
  server->view.error = std::string(page.status().message());
  if (!page.ok()) {
    server->view.rates.reset();
    return;
  }
  ever_read_ = true;
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - server->when).count();
  server->view.rates =
      RatesOf(server->page ? &*server->page : nullptr, *page, std::max(seconds, 1e-3));
  server->page = *std::move(page);
  server->when = now;
}

std::vector<ServerView> Fleet::servers() const {
  std::vector<ServerView> views;
  for (const Server& server : servers_) views.push_back(server.view);
  return views;
}

std::string Fleet::HintFor(const Server& server) const {
  client::ClientOptions options = options_;
  options.tls.reset();
  if (server.address.tls) options.tls = options_.tls.value_or(client::TlsOptions());
  if (absl::IsUnauthenticated(server.error)) {
    return token_.empty() || MaySendToken(server.address)
               ? cli::AccessHint(grpc::StatusCode::UNAUTHENTICATED, options)
               : "the token was not sent, because it would travel unencrypted: see --tls and "
                 "--allow-plaintext-token";
  }
  if (absl::IsPermissionDenied(server.error)) {
    return "only callers whose entry allows \"metrics\" may read metrics";
  }
  const std::string hint = cli::HandshakeHint(server.view.error, options);
  if (!hint.empty() || server.view.error.find("connect") == std::string::npos) return hint;
  return "is castor-server running there? See --metrics";
}

std::string Fleet::Problem() const {
  for (const Server& server : servers_) {
    if (server.error.ok()) continue;
    const std::string hint = HintFor(server);
    return "cannot read the metrics of " + server.view.name + ": " + server.view.error +
           (hint.empty() ? "" : "; " + hint);
  }
  return "";
}

}  // namespace castor::top
