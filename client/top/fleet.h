// The servers that are watched: who they are, what they said last, who is silent.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/metrics/fetch.h"
#include "client/token.h"
#include "client/top/frame.h"
#include "client/top/resolver.h"

namespace castor::top {

using Clock = std::chrono::steady_clock;

struct FleetOptions {
  std::vector<std::string> addresses;  // HOST:PORT or URLs
  bool tls = false;                    // of those that do not say
  client::TlsOptions files{};
  std::string token{}, token_file{};
  bool allow_plaintext_token = false;  // to other machines
  std::chrono::milliseconds patience{5000};
};

// Not thread-safe.
class Fleet {
 public:
  // INVALID_ARGUMENT or FAILED_PRECONDITION where the options cannot be used.
  static absl::StatusOr<std::unique_ptr<Fleet>> Create(FleetOptions options);

  // Begins a round: asks everybody who has answered the last one, and looks names up again that may
  // lead elsewhere by now.
  void StartRound(Clock::time_point now);

  // Takes answers in. Waits for one, for something to read from `also`, or so long.
  void Wait(std::chrono::milliseconds longest, const std::vector<int>& also = {});

  // Everybody has answered, or failed to.
  bool IsRoundComplete() const;

  // Adds what the servers said, together, to the last minute's moments.
  void EndRound(Clock::time_point now);

  // Servers and moments of a view.
  View ViewAt(Clock::time_point now) const;

  bool HasEverRead() const { return ever_read_; }

  // Why a server could not be read, with what may help; "" if all could.
  std::string Problem() const;

 private:
  struct Server {
    size_t id = 0;
    std::string name;
    client::MetricsRequest request;
    bool asked = false;
    std::optional<client::MetricsPage> page{};  // the last
    Clock::time_point when{};                   // it came
    std::optional<Rates> rates{};               // nullopt: it does not answer
    std::optional<Clock::time_point> failing{}, restarted{};
    absl::Status error{};
  };
  // One address that was given.
  struct Source {
    std::string text;
    client::MetricsAddress address;
    Resolver resolver{};
    std::optional<Clock::time_point> resolved{};
    std::list<Server> servers{};
    std::optional<Clock::time_point> failing{};  // to be looked up
    absl::Status error{};
  };

  Fleet(FleetOptions options, std::list<Source> sources);

  void Ask(const Source& source, Server* server);
  void TakeLookups(Clock::time_point now);
  void SetServers(const std::vector<std::string>& endpoints, Source* source);
  void Take(client::MetricsAnswer answer);
  std::string HintFor(const Source& source, const absl::Status& error) const;
  bool MaySendToken(const Source& source) const;

  const FleetOptions options_;
  client::MetricsFetcher fetcher_;
  client::TokenSource token_;
  std::list<Source> sources_;
  size_t next_id_ = 0;
  bool ever_read_ = false;
  std::vector<Moment> moments_;
};

}  // namespace castor::top
