// The connections: every socket that the acceptor took and handed to gRPC, until it is closed.
//
// gRPC 1.51 has no bound on connections, and enforces its bounds on streams and headers only for
// peers that have acknowledged them. So the server keeps its own counts: how many connections there
// are, in all and per host, how many calls each has, and how it behaves. A connection that has used
// up its credit is closed. A connection without a call yet is new: its handshake may never end. The
// number of new connections and their age are bounded.
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
#include <vector>

#include "engine/base/mutex.h"
#include "engine/request.h"
#include "server/metrics/metrics.h"

namespace castor::server {

// A peer's name as gRPC has it, "ipv4:127.0.0.1:4711", and its host alone; both empty for a unix
// socket.
struct PeerName {
  std::string name;
  std::string host;
};
PeerName NameOfPeer(const sockaddr_storage& address);

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
  // owned.
  Connection(uint64_t id, int descriptor, PeerName peer, std::shared_ptr<Host> host);
  ~Connection() { Release(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  uint64_t id() const { return id_; }
  const PeerName& peer() const { return peer_; }
  Host& host() { return *host_; }
  TimePoint opened() const { return opened_; }

  // Counts a call in unless there are `limit` already. If it was counted in, it must be counted
  // out.
  bool EnterCall(int64_t limit);
  void LeaveCall() { calls_.fetch_sub(1, std::memory_order_relaxed); }

  void Answered(TimePoint now);
  // Takes `points` away. Returns true, once, when that was the last of the credit: the connection
  // is then to be Reset.
  bool Misbehaved(double points, TimePoint now);

  // Whether the peer has gone on sending for kLooks of these looks, more than any call's headers,
  // and made no call: what it sends are headers or other frames without end. On one thread.
  static constexpr int kLooks = 10;
  bool SendsWithoutCalls();
  // Whether bytes have come from it. False on unix sockets, which count nothing.
  bool HasSent();

  // Shuts the connection down in both directions. gRPC then sees the end of the stream and frees
  // what it holds. What the peer sends from now on resets the connection, and the peer loses what
  // it has not read.
  void Close();

  // Ends our side only: the peer reads what was sent before, then the end of the stream, and should
  // close. Any thread, also in gRPC, whose own shutdown of the connection comes here.
  void HalfClose();
  // For a half-closed connection: drops what the peer still sends, and returns true once the
  // connection may be closed. That is when the peer has acknowledged everything and sent nothing
  // for kLinger (for kIdle, if it also seems to have read everything), or has taken nothing for
  // kMaxLinger. A client without a call may not look at its connections for seconds.
  static constexpr std::chrono::milliseconds kIdle{250};
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
  // How many bytes have arrived, as TCP counts them; nothing on a unix socket. Notes the window.
  std::optional<int64_t> Received() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the peer's system, when it acknowledged our end, had room for about as much as it ever
  // had: nearly everything has been read there.
  bool SeemsRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Bytes of answers that were sent before our end, and the peer's system has not acknowledged.
  int64_t Unacknowledged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool DropUnread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // whether there was something

  const uint64_t id_;
  const PeerName peer_;
  const std::shared_ptr<Host> host_;
  const TimePoint opened_;
  const ino_t inode_;  // of the socket
  std::atomic<int64_t> calls_ = 0;
  std::atomic<bool> called_ = false;  // since SendsWithoutCalls looked last, whose the next are
  int64_t received_ = 0;
  int senseless_looks_ = 0;
  int64_t senseless_bytes_ = 0;

  mutable Mutex mu_;
  int descriptor_ ABSL_GUARDED_BY(mu_);
  double credit_ ABSL_GUARDED_BY(mu_) = kMaxCredit;
  TimePoint credited_ ABSL_GUARDED_BY(mu_);
  bool expelled_ ABSL_GUARDED_BY(mu_) = false;
  bool cut_off_ ABSL_GUARDED_BY(mu_) = false;
  TimePoint half_closed_ ABSL_GUARDED_BY(mu_) = TimePoint::max();
  int64_t unacknowledged_ ABSL_GUARDED_BY(mu_) = 0;  // when Lingered looked last
  int64_t window_ ABSL_GUARDED_BY(mu_) = 0;          // that the peer offers; 0: not known
  int64_t most_window_ ABSL_GUARDED_BY(mu_) = 0;
  bool end_acknowledged_ ABSL_GUARDED_BY(mu_) = false;
  TimePoint busy_ ABSL_GUARDED_BY(mu_) = TimePoint::min();  // answered, took or sent something
};

class Connections {
 public:
  struct Limits {
    int64_t total;
    int64_t per_host;
    int64_t new_connections = std::numeric_limits<int64_t>::max();  // that have made no call yet
    std::chrono::milliseconds first_call{0};                        // the time for it; 0: unlimited
  };

  // `metrics` (null: nothing is counted) must outlive it. Check ok() first: there may be no
  // descriptor left.
  Connections(Limits limits, Metrics* metrics);
  ~Connections();
  bool ok() const { return epoll_ >= 0; }

  // Enters a connected `socket` from `from`, which stays the caller's; or says why it must be
  // closed.
  std::optional<RefusedConnection> Add(int socket, const sockaddr_storage& from);

  // A call begins on the connection that gRPC names so, which is not new any more; null on unix
  // sockets, which gRPC cannot tell apart.
  std::shared_ptr<Connection> ForCall(std::string_view name);

  std::vector<std::shared_ptr<Connection>> All() const;

  // Forgets connections that have ended, and closes those whose time is up: new ones that make no
  // call, who sends without end and makes none, and half-closed ones whose peers have had their
  // time. On one thread. Returns when to call it again.
  static constexpr std::chrono::milliseconds kWatchEvery{100};  // while there are connections
  std::chrono::milliseconds Watch(TimePoint now);

  // Ends every connection: our side first, and the rest when the peer has ended its own, or has had
  // time to take what was sent, or at `deadline`.
  void CloseAll(TimePoint deadline);

  // How many peers have not taken their answers in that time, ever.
  int64_t undelivered() const { return undelivered_; }

  int64_t open() const;

 private:
  using Ages = std::map<uint64_t, std::shared_ptr<Connection>>;  // by number: the oldest first

  struct HostEntry {
    int64_t connections = 0;
    Ages new_connections = {};
    std::shared_ptr<Host> host = std::make_shared<Host>();
  };

  void RemoveEnded();
  void Remove(uint64_t id);
  void CloseSilent(TimePoint now);
  // Takes the oldest new connection out of those of the host that has most.
  std::shared_ptr<Connection> TakeOldestNew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It is not new any more. Returns whether it was.
  bool MarkEstablished(const Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  Metrics* const metrics_;
  const int epoll_;  // tells which connections have ended
  std::atomic<int64_t> undelivered_ = 0;

  mutable Mutex mu_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> by_id_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, std::shared_ptr<Connection>> by_name_ ABSL_GUARDED_BY(mu_);
  int64_t new_connections_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<std::string, HostEntry> hosts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace castor::server
