// A lane's connections: it keeps them up, spreads calls over them, and waits for what they bring.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/load/base/clock.h"
#include "client/load/drive/endpoint.h"
#include "client/load/http2/address.h"
#include "client/load/http2/client_connection.h"
#include "client/load/http2/name_watch.h"
#include "client/load/http2/tls_context.h"
#include "client/tls.h"

namespace castor::load {

struct LinkOptions {
  std::optional<client::TlsOptions> tls = std::nullopt;  // nullopt: plaintext
  Resolver resolve = Resolve;
  // How often connections are spread anew over the servers of a name, and how long one that failed
  // is left alone.
  std::chrono::milliseconds spread = std::chrono::seconds(5);
};

// Not thread-safe, but for Wake().
class Links {
 public:
  // Begins to connect, `each` times to each of the endpoints, and to each server of a name at least
  // once. Each connection uses the files of TLS as they are when it begins. Throws ServerError when
  // there is no such host.
  Links(const std::vector<std::string>& endpoints, int each, LinkOptions options = {});
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Waits until every connection is up. Throws ServerError that names the endpoint, and says why,
  // when one is not within `patience`, or cannot be because of what TLS asks for.
  void AwaitAll(std::chrono::seconds patience);

  // The endpoint of the next call: they take turns, and so do the connections to each.
  size_t NextEndpoint() const { return turn_ % endpoints_.size(); }
  const std::string& authority(size_t endpoint) const { return endpoints_[endpoint]->authority(); }

  // Starts the call at NextEndpoint(), over a connection that is up if one is; Flush() sends it.
  // Where there is no connection it ends at once, as UNAVAILABLE.
  void Start(UnaryCall& call);

  // Ends a call, which is not in ended() then.
  void Cancel(UnaryCall& call, grpc::Status status);

  // The calls that have ended since this was last emptied, which is the caller's to do.
  std::vector<UnaryCall*>& ended() { return ended_; }
  const std::vector<UnaryCall*>& ended() const { return ended_; }

  // Sends what calls and cancellations have left to send.
  void Flush();

  // Waits for `until` (nullopt: for ever), for an answer, or for Wake(); reads what has come.
  void Wait(std::optional<Clock::time_point> until);

  // Processor time that waits took, since they end by the clock and not by an alarm.
  std::chrono::nanoseconds watched() const { return watched_; }

  // Ends the wait, or the next one. Any thread.
  void Wake() const;

 private:
  struct Watched {
    std::unique_ptr<ClientConnection> connection;
    Address address{};
    uint32_t events = 0;  // of epoll
  };
  // A place for a connection, which is replaced when it breaks.
  struct Link {
    size_t endpoint = 0;
    Watched current;               // null while there is none
    std::vector<Watched> leaving;  // the server has asked to leave them; they still bring answers
    bool dirty = false;
    std::string failure;                      // of the last try
    bool hopeless = false;                    // it would fail again
    std::chrono::milliseconds pause{0};       // before the next one
    std::optional<Clock::time_point> try_at;  // when there is no connection
  };

  void Connect(size_t index);
  // Tries again after a pause.
  void Postpone(Link& link);
  void MarkDirty(size_t index);
  void FlushLink(size_t index);
  void FlushOne(size_t index, Watched& one);
  // Replaces the connection if it takes no more calls.
  void Mend(size_t index);
  // Gives up the link's connection, which answers what it was asked if `failed` is not set.
  void Leave(Link& link, bool failed);
  // The link that takes a call of this turn.
  size_t Choose(size_t index);
  // Connections to servers that have left their name, or have many, go to those with few.
  void Spread();
  void SetTimer(Clock::time_point time);
  void Watch(const ClientConnection& connection, uint64_t key, uint32_t events, int operation);

  std::vector<UnaryCall*> ended_;  // above the connections, which write to it as they go
  const std::chrono::milliseconds spread_;
  std::optional<TlsClientContext> tls_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<Link> links_;  // connection c of endpoint e at c * endpoints + e
  std::vector<size_t> dirty_, flushing_;
  size_t turn_ = 0;
  size_t broken_ = 0;  // links without a connection
  bool more_ = false;  // after Flush(): a socket takes more at once
  int epoll_ = -1, timer_ = -1, wake_ = -1;
  Clock::time_point timer_at_{};
  const Clock::time_point begun_ = Clock::now();
  // When to spread next; nullopt: each name is one server.
  std::optional<Clock::time_point> spread_at_;
  bool woken_ = false;  // perhaps since a name has other addresses
  std::chrono::nanoseconds watched_{0};
};

}  // namespace castor::load
