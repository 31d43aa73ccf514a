// Who is connected: every socket that the acceptor took and handed to gRPC, until it is closed.
//
// gRPC 1.51 has no bound on connections, and enforces its bounds on streams and headers only for
// peers that have acknowledged them. So the server keeps its own counts: how many connections there
// are, in all and per host, how many calls each has, and how it behaves. A connection that has used
// up its credit is closed. One that has made no call yet is new: it may be in a handshake that
// never ends, or not know what to ask. Of new ones there may be so many, for so long.
//
// Any thread may call anything. Locks are leaves: only the kernel is called under them.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/request.h"
#include "server/metrics.h"

namespace castor::server {

// The total of one host's callers. Shared by its connections.
struct Host {
  std::atomic<int64_t> calls = 0;
  std::atomic<int64_t> health_checks = 0;
};

// When somebody looks at the connections.
struct Moment {
  TimePoint now;
  int64_t resident_bytes;  // the process's
};

// One connection's counts and credit. Calls hold it by shared_ptr and may outlive the socket.
class Connection {
 public:
  // A connection starts with this many points and never has more. Misconduct costs points; an
  // answered call restores one, and so does every hundredth of a second.
  static constexpr double kMaxCredit = 1000;
  static constexpr double kCreditPerSecond = 100;

  // `descriptor` is a duplicate of gRPC's, so that it stays valid after gRPC has closed its own;
  // owned. `name` is the peer as gRPC names it, "ipv4:127.0.0.1:4711"; `address` that without the
  // port, empty for a unix socket. `secured`: its bytes are TLS's.
  Connection(int descriptor, std::string name, std::string address, std::shared_ptr<Host> host,
             bool secured = false);
  ~Connection() { Release(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  Host& host() { return *host_; }
  TimePoint opened() const { return opened_; }

  // Its handshake has begun, and is gRPC's.
  void HandedOver() { handed_over_.store(true, std::memory_order_relaxed); }
  bool handed_over() const { return handed_over_.load(std::memory_order_relaxed); }

  // Counts a call in unless there are `limit` already. If it was counted in, it must be counted
  // out.
  bool EnterCall(int64_t limit);
  void LeaveCall() { calls_.fetch_sub(1, std::memory_order_relaxed); }

  void Answered();
  // Takes `points` away. Returns true when that was the last of the credit: the connection is then
  // closed. True at most once.
  bool Misbehaved(double points, TimePoint now);

  // Bytes that have arrived on this connection and are unfinished: parts of messages, and whatever
  // else gRPC keeps until it is complete. TCP counts what arrives; the methods below count off what
  // is done.
  //
  // A call began, with this many bytes of headers.
  void Began(int64_t bytes);
  // A call's message is complete.
  void Finished(int64_t bytes);
  // A call ended before its message was complete, so gRPC drops a part of unknown size. It counts
  // as an even share of the unfinished bytes; for the last such call, as all of them and those that
  // arrive within kPardon.
  static constexpr std::chrono::seconds kPardon{1};
  void Dropped(TimePoint now);
  // An answer was sent; the peer's acknowledgements take some bytes.
  void Sent(int64_t bytes);

  // How many unfinished bytes gRPC has read; 0 on unix sockets, which count nothing.
  int64_t Unfinished(TimePoint now);
  // The same, as of the last call.
  int64_t last_unfinished() const;

  // Whether the unfinished bytes, as of the last call of Unfinished, can only be headers without
  // end: more than any call's headers, no message incomplete, and no call begun over more than
  // kLooks calls of this method, and for longer than kPatience or at a great cost in memory. Large
  // messages look the same from when gRPC reads them until a handler runs; on an overloaded machine
  // that can take half a second.
  static constexpr int kLooks = 1;
  static constexpr std::chrono::milliseconds kPatience{1500};
  bool SendsEndlessHeaders(const Moment& moment);

  // Shuts the connection down in both directions. gRPC then sees the end of the stream and frees
  // what it holds.
  void Close();
  // The same, by a reset: bytes that have arrived and not been read are dropped, and so are bytes
  // to be sent.
  void Reset();

  // Closes the descriptor: the peer, or gRPC, has closed the connection.
  void Release();

 private:
  const std::string name_;
  const std::string address_;
  const std::shared_ptr<Host> host_;
  int64_t Look(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const bool secured_;
  const TimePoint opened_;
  std::atomic<bool> handed_over_ = false;
  std::atomic<int64_t> calls_ = 0;

  mutable Mutex mu_;
  int64_t receiving_ ABSL_GUARDED_BY(mu_) = 0;    // calls whose messages are incomplete
  int64_t counted_off_ ABSL_GUARDED_BY(mu_) = 0;  // bytes
  int64_t unfinished_ ABSL_GUARDED_BY(mu_) = 0;   // when last looked at
  TimePoint pardoned_until_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  int suspicious_looks_ ABSL_GUARDED_BY(mu_) = 0;  // in succession, since suspected_since_
  Moment suspected_since_ ABSL_GUARDED_BY(mu_){};
  int descriptor_ ABSL_GUARDED_BY(mu_);
  double credit_ ABSL_GUARDED_BY(mu_) = kMaxCredit;
  TimePoint credited_ ABSL_GUARDED_BY(mu_);
  bool expelled_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

class Connections {
 public:
  struct Limits {
    int64_t total;
    int64_t per_host;
    int64_t new_ones = std::numeric_limits<int64_t>::max();  // that have made no call yet
    // For the first byte of a handshake to reach gRPC, and for the first call; 0: unlimited.
    std::chrono::milliseconds handshake{0};
    std::chrono::milliseconds first_call{0};
    bool secured = false;  // they speak TLS
  };

  Connections(Limits limits, Metrics& metrics) : limits_(limits), metrics_(metrics) {}

  // The result for a socket: its number here, or why it must be closed.
  struct Admitted {
    uint64_t id;
    int descriptor;  // the duplicate; valid until Remove(id)
    std::shared_ptr<Connection> connection;
  };
  // Enters a connected `socket` from `from`; the socket stays the caller's.
  std::variant<Admitted, RefusedConnection> Add(int socket, const sockaddr_storage& from);

  // The socket is closed: forgets it.
  void Remove(uint64_t id);

  // A call begins on the connection that gRPC names so, which is not new any more; null on unix
  // sockets, which gRPC cannot tell apart.
  std::shared_ptr<Connection> ForCall(std::string_view name);

  std::vector<std::shared_ptr<Connection>> All() const;

  // Closes new connections whose time is up. Call periodically.
  void CloseSilent(TimePoint now);

  // Closes connections that send headers without end. Then closes the one with the most unfinished
  // bytes, until all together have no more than `limit`. Metrics learn what is left. Call
  // periodically, from one thread, and once more when all connections have gone.
  void BoundUnfinished(int64_t limit, const Moment& moment);

  // Closes the connection with the most unfinished bytes, as of the last BoundUnfinished. False if
  // none has any.
  bool CloseLargest();

  // Ends every connection.
  void CloseAll();

  int64_t open() const;

 private:
  using Ages = std::map<uint64_t, std::shared_ptr<Connection>>;  // by number: the oldest first

  struct HostEntry {
    int64_t connections = 0;
    Ages new_ones = {};
    std::shared_ptr<Host> host = std::make_shared<Host>();
  };

  // Takes the oldest new connection out of those of the host that has most.
  std::shared_ptr<Connection> TakeOldestNew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It is not new any more.
  void Settle(const Connection& connection, uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Expel(Connection& connection, int64_t bytes, std::string_view why);

  const Limits limits_;
  Metrics& metrics_;
  int64_t unfinished_ = 0;  // when BoundUnfinished last looked; of its thread only

  mutable Mutex mu_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> by_id_ ABSL_GUARDED_BY(mu_);
  struct Named {
    uint64_t id = 0;
    std::shared_ptr<Connection> connection = {};
    bool called = false;
  };
  std::unordered_map<std::string, Named> by_name_ ABSL_GUARDED_BY(mu_);
  int64_t new_ones_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<std::string, HostEntry> hosts_ ABSL_GUARDED_BY(mu_);
};

// gRPC's name for a peer at `address`, and the address alone; both empty for a unix socket.
struct PeerName {
  std::string name;
  std::string host;
};
PeerName NameOfPeer(const sockaddr_storage& address);

}  // namespace castor::server
