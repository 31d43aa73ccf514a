#include "client/top/fleet.h"

#include <algorithm>
#include <utility>

#include "client/target.h"

namespace castor::top {
namespace {

constexpr std::chrono::seconds kLookUpEvery{10}, kShowRestart{60}, kRemembered{60};

double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double SinceEpoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool IsCastors(const client::MetricsPage& page) {
  const auto first = page.lower_bound("castor_");
  return first != page.end() && first->first.starts_with("castor_");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Create(FleetOptions options) {
  std::list<Source> sources;
  bool tls = false;
  for (const std::string& text : options.addresses) {
    auto address = client::ParseMetricsAddress(text, options.tls, options.files.server_name);
    if (!address.ok()) return address.status();
    tls = tls || address->tls;
    sources.push_back({.text = text, .address = *std::move(address)});
  }
  if (tls) {
    if (absl::Status status = client::CheckTlsFiles(options.files); !status.ok()) return status;
  }
  std::unique_ptr<Fleet> fleet(new Fleet(std::move(options), std::move(sources)));
  if (auto header = fleet->token_.Header(); !header.ok()) return header.status();
  return fleet;
}

Fleet::Fleet(FleetOptions options, std::list<Source> sources)
    : options_(std::move(options)),
      fetcher_(options_.files, options_.patience),
      token_(options_.token, options_.token_file),
      sources_(std::move(sources)) {
  for (Source& source : sources_) {
    if (IsNumericHost(source.address.host)) SetServers({}, &source);
  }
}

void Fleet::SetServers(const std::vector<std::string>& endpoints, Source* source) {
  const auto wanted = [&](const Server& server) {
    if (endpoints.empty()) return server.name == source->text;
    return std::find(endpoints.begin(), endpoints.end(), server.name) != endpoints.end();
  };
  // One that the name no longer leads to may still drain: it goes when it is silent.
  source->servers.remove_if(
      [&](const Server& server) { return !wanted(server) && !server.asked && !server.rates; });
  const auto add = [&](const std::string& name, const std::string& connect_to) {
    const bool there = std::any_of(source->servers.begin(), source->servers.end(),
                                   [&](const Server& server) { return server.name == name; });
    if (there) return;
    source->servers.push_back({.id = next_id_++,
                               .name = name,
                               .request = {.url = source->address.url, .connect_to = connect_to}});
  };
  for (const std::string& endpoint : endpoints) add(endpoint, endpoint);
  if (endpoints.empty()) add(source->text, source->address.connect_to);
}

bool Fleet::MaySendToken(const Source& source) const {
  const std::string target = client::JoinHostPort(source.address.host, source.address.port);
  return source.address.tls || options_.allow_plaintext_token || client::IsOnThisMachine(target);
}

void Fleet::Ask(const Source& source, Server* server) {
  server->request.authorization.clear();
  if (MaySendToken(source)) {
    if (auto header = token_.Header(); header.ok()) server->request.authorization = *header;
  }
  server->asked = true;
  fetcher_.Start(server->id, server->request);
}

void Fleet::StartRound(Clock::time_point now) {
  for (Source& source : sources_) {
    const bool stale = !source.resolved || now - *source.resolved >= kLookUpEvery;
    if (!IsNumericHost(source.address.host) && stale && !source.resolver.pending()) {
      source.resolver.Start(source.address.host, source.address.port);
    }
    for (Server& server : source.servers) {
      if (!server.asked) Ask(source, &server);
    }
  }
}

void Fleet::TakeLookups(Clock::time_point now) {
  for (Source& source : sources_) {
    auto found = source.resolver.Poll();
    if (!found) continue;
    source.error = found->status();
    if (!found->ok()) {
      if (!source.failing) source.failing = now;
      continue;
    }
    source.failing.reset();
    source.resolved = now;
    SetServers(**found, &source);
    for (Server& server : source.servers) {
      if (!server.asked && !server.page) Ask(source, &server);
    }
  }
}

void Fleet::Wait(std::chrono::milliseconds longest, const std::vector<int>& also) {
  const bool looking = std::any_of(sources_.begin(), sources_.end(),
                                   [](const Source& source) { return source.resolver.pending(); });
  constexpr std::chrono::milliseconds kLook{20};  // glibc's lookups wake nobody
  for (client::MetricsAnswer& answer :
       fetcher_.Wait(looking ? std::min(longest, kLook) : longest, also)) {
    Take(std::move(answer));
  }
  TakeLookups(Clock::now());
}

void Fleet::Take(client::MetricsAnswer answer) {
  Server* server = nullptr;
  for (Source& source : sources_) {
    for (Server& each : source.servers) {
      if (each.id == answer.id) server = &each;
    }
  }
  if (server == nullptr) return;
  server->asked = false;
  if (answer.page.ok() && !IsCastors(*answer.page)) {
    answer.page = absl::UnavailableError("this is not a castor-server's /metrics page");
  }
  if (!answer.page.ok()) {
    server->error = answer.page.status();
    server->rates.reset();
    if (!server->failing) server->failing = answer.when;
    return;
  }
  ever_read_ = true;
  const bool restarted = server->page && HasRestarted(*server->page, *answer.page);
  if (restarted) server->restarted = answer.when;
  const client::MetricsPage* const before = server->page && !restarted ? &*server->page : nullptr;
  const double seconds = std::max(SecondsBetween(server->when, answer.when), 1e-3);
  server->rates = RatesOf(before, *answer.page, seconds, SinceEpoch());
  server->page = *std::move(answer.page);
  server->when = answer.when;
  server->failing.reset();
  server->error = absl::OkStatus();
}

bool Fleet::IsRoundComplete() const {
  return fetcher_.pending() == 0 &&
         std::none_of(sources_.begin(), sources_.end(), [](const Source& source) {
           return source.servers.empty() && source.resolver.pending();
         });
}

void Fleet::EndRound(Clock::time_point now) {
  Moment moment{.when = std::chrono::duration<double>(now.time_since_epoch()).count()};
  if (const auto total = TotalOf(ViewAt(now).servers); total && total->seconds > 0) {
    const WorkRates sum = total->Sum();
    moment.requests = sum.requests;
    moment.p99 = sum.latency.Quantile(0.99);
  }
  moments_.push_back(moment);
  const double oldest = moment.when - static_cast<double>(kRemembered.count());
  std::erase_if(moments_, [&](const Moment& each) { return each.when <= oldest; });
}

View Fleet::ViewAt(Clock::time_point now) const {
  View view;
  view.moments = moments_;
  for (const Source& source : sources_) {
    for (const Server& server : source.servers) {
      ServerView shown{.name = server.name, .rates = server.rates};
      if (server.failing) {
        shown.unreachable_seconds = SecondsBetween(*server.failing, now);
        shown.error = std::string(server.error.message());
      }
      if (server.restarted && now - *server.restarted < kShowRestart) {
        shown.restarted_seconds = SecondsBetween(*server.restarted, now);
      }
      view.servers.push_back(std::move(shown));
    }
    if (!source.servers.empty()) continue;
    ServerView shown{.name = source.text};
    if (source.failing) {
      shown.unreachable_seconds = SecondsBetween(*source.failing, now);
      shown.error = std::string(source.error.message());
    }
    view.servers.push_back(std::move(shown));
  }
  return view;
}

std::string Fleet::HintFor(const Source& source, const absl::Status& error) const {
  const auto says = [&](std::string_view text) {
    return error.message().find(absl::string_view(text.data(), text.size())) !=
           absl::string_view::npos;
  };
  if (absl::IsUnauthenticated(error)) {
    if (token_.empty()) {
      return "the server requires a credential: see --token-file and CASTOR_TOKEN";
    }
    return MaySendToken(source) ? "the server does not accept this token"
                                : "the token was not sent, because the connection is plaintext: "
                                  "see --tls and --allow-plaintext-token";
  }
  if (absl::IsPermissionDenied(error)) {
    return "only callers whose entry allows \"metrics\" may read them";
  }
  if (source.address.tls) {
    if (says("wrong version number")) {
      return "/metrics does not use TLS there: leave out --tls, or use http://HOST:PORT";
    }
    // What a plaintext server's end of the connection looks like if it comes before its answer.
    if (says("SSL_ERROR_SYSCALL") || says("unexpected eof")) {
      return "the peer closed the handshake: if /metrics does not use TLS there, leave out --tls";
    }
    if (says("unable to get local issuer") || says("self-signed") || says("expired")) {
      return "no trusted authority signed its certificate: see --ca";
    }
    if (says("subject name")) return "its certificate is for another name: see --server-name";
    if (says("alert") || says("certificate required")) {
      return "the server may require a client certificate: see --cert and --cert-key";
    }
  } else if (says("Empty reply") || says("reset by peer") || says("HTTP/0.9")) {
    return "does /metrics use TLS there? Try --tls";
  }
  if (says("connect")) return "is castor-server running there? See --metrics";
  return "";
}

std::string Fleet::Problem() const {
  for (const Source& source : sources_) {
    std::string name = source.text;
    absl::Status error = source.error;
    for (const Server& server : source.servers) {
      if (server.error.ok()) continue;
      name = server.name;
      error = server.error;
    }
    if (error.ok()) continue;
    const std::string hint = HintFor(source, error);
    return "cannot read the metrics of " + name + ": " + std::string(error.message()) +
           (hint.empty() ? "" : "; " + hint);
  }
  return "";
}

}  // namespace castor::top
