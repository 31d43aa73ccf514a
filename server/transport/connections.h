// Who is connected: every socket that the acceptor took and handed to gRPC, until it is closed.
//
// gRPC 1.51 has no bound on connections, and enforces its bounds on streams and headers only for
// peers that have acknowledged them. So the server keeps its own counts: how many connections there
// are, in all and per host, how many calls each has, and how it behaves. A connection that has used
// up its credit is closed. One that has made no call yet is new: it may be in a handshake that
// never ends, or not know what to ask. Of new ones there may be so many, for so long.
//
// Any thread may call anything. Connections' lock comes first, then that of the sockets that gRPC's
// shutdown looks up, then a connection's. Under them only the kernel is called.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/request.h"
#include "server/metrics/metrics.h"

namespace castor::server {

// The total of one host's callers. Shared by its connections.
struct Host {
  std::atomic<int64_t> calls = 0;
  std::atomic<int64_t> health_checks = 0;
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
  // port, empty for a unix socket.
  Connection(uint64_t id, int descriptor, std::string name, std::string address,
             std::shared_ptr<Host> host);
  ~Connection() { Release(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  uint64_t id() const { return id_; }
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

  void Answered(TimePoint now);
  // Takes `points` away. Returns true, once, when that was the last of the credit: the connection
  // is then to be Reset.
  bool Misbehaved(double points, TimePoint now);

  // A call waits for a message; has it whole, or ends without it.
  void BeginMessage();
  void EndMessage();

  // What the connection's watch does every so often; on one thread. Returns how many bytes have
  // arrived, since a call last did one of the above, of messages that are not whole; 0 on unix
  // sockets, which count nothing.
  int64_t Look();
  // Whether the peer has gone on sending for kLooks looks, more than any call's headers, and has no
  // call: what it sends are headers or other frames without end.
  static constexpr int kLooks = 10;
  bool SendsWithoutCalls() const;

  // Shuts the connection down in both directions. gRPC then sees the end of the stream and frees
  // what it holds. What the peer sends from now on resets the connection, and the peer loses what
  // it has not read.
  void Close();

  // Ends our side only: the peer reads what was sent before, then the end of the stream, and should
  // close. Any thread, also in gRPC, whose own shutdown of the connection comes here.
  void HalfClose();
  // Of a half-closed connection: drops what the peer still sends, and returns whether there is no
  // more reason to wait: it has had everything and sent nothing for kLinger, or taken nothing for
  // kMaxLinger.
  static constexpr std::chrono::seconds kLinger{2};
  static constexpr std::chrono::seconds kMaxLinger{30};
  bool Lingered(TimePoint now);
  // Closes it. Returns whether the peer's system has not taken all of its answers; once.
  bool CutOff();

  // Resets it: bytes that have arrived and not been read are dropped, and so are bytes to be sent.
  void Reset();

  // Closes the descriptor: the peer, or gRPC, has closed the connection.
  void Release();

 private:
  const uint64_t id_;
  const std::string name_;
  const std::string address_;
  const std::shared_ptr<Host> host_;
  // How many bytes have arrived, as TCP counts them, and how many of them gRPC has not read.
  // Nothing at the end of the connection.
  struct Received {
    int64_t all;
    int64_t unread;
  };
  std::optional<Received> CountReceived() const;
  // Bytes that were sent before our end, and the peer's system has not acknowledged.
  int64_t Unacknowledged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether so many may be part of an answer.
  bool Owes(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool DropUnread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // whether there was something

  const TimePoint opened_;
  const ino_t inode_;  // of the socket
  std::atomic<bool> handed_over_ = false;
  std::atomic<int64_t> calls_ = 0;
  std::atomic<int64_t> receiving_ = 0;  // calls whose messages are not whole
  std::atomic<int64_t> events_ = 0;     // messages begun and ended

  // Look's: what it saw last, and since when nothing but bytes has come.
  int64_t seen_events_ = 0;
  int64_t arrived_ = 0;
  int64_t arrived_before_ = 0;  // the last event
  int senseless_looks_ = 0;
  int64_t senseless_bytes_ = 0;

  mutable Mutex mu_;
  int descriptor_ ABSL_GUARDED_BY(mu_);
  double credit_ ABSL_GUARDED_BY(mu_) = kMaxCredit;
  TimePoint credited_ ABSL_GUARDED_BY(mu_);
  bool expelled_ ABSL_GUARDED_BY(mu_) = false;
  bool cut_off_ ABSL_GUARDED_BY(mu_) = false;
  TimePoint last_answer_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  TimePoint half_closed_ ABSL_GUARDED_BY(mu_) = TimePoint::max();
  int64_t unacknowledged_ ABSL_GUARDED_BY(mu_) = 0;         // when Lingered looked last
  TimePoint busy_ ABSL_GUARDED_BY(mu_) = TimePoint::min();  // when it last took or sent something
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
  };

  Connections(Limits limits, Metrics& metrics) : limits_(limits), metrics_(metrics) {}

  // The result for a socket, or why it must be closed.
  struct Admitted {
    int descriptor;  // the duplicate; valid until Remove
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

  // Looks at what arrives: closes who sends without end and makes no call; metrics learn how much
  // is not whole. Call periodically, from one thread, and once more when all connections have gone.
  void Look();

  // Closes half-closed connections whose peers have had their time. Call periodically.
  void CloseLingering(TimePoint now);

  // Ends every connection: our side first, and the rest when the peer has ended its own, or has had
  // time to take what was sent, or at `deadline`.
  void CloseAll(TimePoint deadline);

  // How many peers have not taken their answers in that time, ever.
  int64_t untaken() const { return untaken_; }

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
  void Settle(const Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  Metrics& metrics_;
  std::atomic<int64_t> untaken_ = 0;
  int64_t arriving_ = 0;  // when Look looked last; its thread's

  mutable Mutex mu_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> by_id_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, std::shared_ptr<Connection>> by_name_ ABSL_GUARDED_BY(mu_);
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
