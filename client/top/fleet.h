// The watched servers: their addresses, their latest metrics, and their errors.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/credentials.h"
#include "client/metrics/fetch.h"
#include "client/top/frame.h"

namespace castor::top {

// Not thread-safe.
class Fleet {
 public:
  // Watches the servers at `addresses`, each HOST:PORT or a URL. A name that resolves to several
  // addresses stands for several servers. Uses only the TLS files and the token of `options`.
  // INVALID_ARGUMENT for a wrong address, FAILED_PRECONDITION for a file that cannot be used.
  static absl::StatusOr<std::unique_ptr<Fleet>> Create(const std::vector<std::string>& addresses,
                                                       client::ClientOptions options);

  // Asks every server that has answered the previous round. Resolves names again every 10 s, which
  // blocks.
  void StartRound();

  // Handles answers until one has come, or for `longest`.
  void Wait(std::chrono::milliseconds longest) { fetcher_.Wait(longest); }

  // Whether every server has answered or failed.
  bool IsRoundComplete() const { return !fetcher_.pending(); }

  std::vector<ServerView> servers() const;

  bool HasEverRead() const { return ever_read_; }

  // Why a server could not be read, with a hint; "" if all were read.
  std::string Problem() const;

 private:
  using Clock = std::chrono::steady_clock;

  // An address given by the user.
  struct Source {
    std::string text;
    client::MetricsAddress address;
    Clock::time_point next_lookup{};
  };
  struct Server {
    const Source* source;
    ServerView view;
    client::MetricsAddress address;
    bool request_pending = false;
    std::optional<client::MetricsPage> page{};  // the last one
    Clock::time_point when{};                   // when the page came
    absl::Status error{};
  };

  Fleet(client::ClientOptions options, std::list<Source> sources);

  void LookUp(Source* source);
  void HandlePage(absl::StatusOr<client::MetricsPage> page, Server* server);
  std::string HintFor(const Server& server) const;
  bool MaySendToken(const client::MetricsAddress& address) const;

  const client::ClientOptions options_;
  client::TokenSource token_;
  std::list<Source> sources_;
  std::list<Server> servers_;  // the fetcher points to those with a request pending
  client::MetricsFetcher fetcher_;
  bool ever_read_ = false;
};

}  // namespace castor::top
