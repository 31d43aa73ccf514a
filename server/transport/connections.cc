#include "server/transport/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "server/logging.h"

namespace castor::server {
namespace {

PeerName NameOfIpv4(const in_addr& address, in_port_t port) {
  char host[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address, host, sizeof(host));
  return {"ipv4:" + std::string(host) + ":" + std::to_string(ntohs(port)), host};
}

// Allowances for bytes that are not messages: frame headers, and frames that a peer sends on its
// own. Per call and answer, as a part of messages and answers, and per second.
constexpr int64_t kFrames = 1024;
constexpr int64_t kFramesPart = 256;
constexpr int64_t kUpdatesPart = 64;
constexpr int64_t kPingsPerSecond = 256;
// What TLS adds: 22 bytes to each record, of which some peers send many that are small; and the
// handshake, in which a client's certificates may come.
constexpr int64_t kRecordsPart = 32;
constexpr int64_t kHandshake = 64 << 10;

// Of headers and the like, without a message.
constexpr int64_t kMostHeaders = 1 << 20;
// A header that arrives as one byte can take 240 in memory, a message's byte takes one or two.
constexpr int64_t kHeadersMultiply = 32;
// Bytes, on the wire or in memory, that are not spent on being sure.
constexpr int64_t kGreatCost = 128 << 20;

// After a shutdown gRPC would still read and parse some MiB that have arrived: a gigabyte of memory
// if each byte is a header. Connecting to nowhere (AF_UNSPEC) resets a TCP connection and drops
// those bytes.
void Disconnect(int socket) {
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  if (connect(socket, &nowhere, sizeof(nowhere)) != 0) shutdown(socket, SHUT_RDWR);
}

}  // namespace

PeerName NameOfPeer(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof(v4));
    return NameOfIpv4(v4.sin_addr, v4.sin_port);
  }
  if (address.ss_family != AF_INET6) return {};
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof(v6));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {  // gRPC names these by their IPv4 address
    in_addr v4;
    std::memcpy(&v4, v6.sin6_addr.s6_addr + 12, sizeof(v4));
    return NameOfIpv4(v4, v6.sin6_port);
  }
  char host[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
  // A URI's path, in which brackets are escaped. A scope follows an escaped percent sign.
  std::string name = "ipv6:%5B" + std::string(host);
  if (v6.sin6_scope_id != 0) name += "%25" + std::to_string(v6.sin6_scope_id);
  return {name + "%5D:" + std::to_string(ntohs(v6.sin6_port)), host};
}

// ---- Connection

Connection::Connection(int descriptor, std::string name, std::string address,
                       std::shared_ptr<Host> host, bool secured)
    : name_(std::move(name)),
      address_(std::move(address)),
      host_(std::move(host)),
      secured_(secured),
      opened_(std::chrono::steady_clock::now()),
      counted_off_(secured ? kHandshake : 0),
      descriptor_(descriptor),
      credited_(opened_) {}

bool Connection::EnterCall(int64_t limit) {
  if (calls_.fetch_add(1, std::memory_order_relaxed) < limit) return true;
  LeaveCall();
  return false;
}

void Connection::Answered() {
  MutexLock lock(mu_);
  credit_ = std::min(credit_ + 1, kMaxCredit);
}

bool Connection::Misbehaved(double points, TimePoint now) {
  MutexLock lock(mu_);
  const std::chrono::duration<double> passed = now - credited_;
  if (passed.count() > 0) {
    credit_ = std::min(credit_ + kCreditPerSecond * passed.count(), kMaxCredit);
    credited_ = now;
  }
  credit_ -= points;
  if (credit_ > 0 || expelled_) return false;
  expelled_ = true;
  closed_ = true;
  if (descriptor_ >= 0) Disconnect(descriptor_);
  return true;
}

void Connection::Began(int64_t bytes) {
  MutexLock lock(mu_);
  ++receiving_;
  suspicious_looks_ = 0;
  counted_off_ += bytes + kFrames;
}

void Connection::Finished(int64_t bytes) {
  MutexLock lock(mu_);
  --receiving_;
  counted_off_ += bytes + bytes / (secured_ ? kRecordsPart : kFramesPart) + kFrames;
}

void Connection::Dropped(TimePoint now) {
  MutexLock lock(mu_);
  counted_off_ += Look(now) / receiving_ + kFrames;
  // The peer may have sent more before it learned that the call had ended.
  if (--receiving_ == 0) pardoned_until_ = now + kPardon;
}

void Connection::Sent(int64_t bytes) {
  MutexLock lock(mu_);
  counted_off_ += bytes / kUpdatesPart + kFrames;
}

int64_t Connection::Unfinished(TimePoint now) {
  MutexLock lock(mu_);
  return Look(now);
}

int64_t Connection::last_unfinished() const {
  MutexLock lock(mu_);
  return unfinished_;
}

bool Connection::SendsEndlessHeaders(const Moment& moment) {
  MutexLock lock(mu_);
  if (unfinished_ <= kMostHeaders || receiving_ > 0) {
    suspicious_looks_ = 0;
    return false;
  }
  if (suspicious_looks_++ == 0) suspected_since_ = moment;
  if (suspicious_looks_ <= kLooks) return false;
  const int64_t grown = moment.resident_bytes - suspected_since_.resident_bytes;
  const bool costly =
      unfinished_ >= kGreatCost || (grown >= kGreatCost && grown / kHeadersMultiply >= unfinished_);
  return costly || moment.now - suspected_since_.now >= kPatience;
}

int64_t Connection::Look(TimePoint now) {
  unfinished_ = 0;
  // What the kernel still holds, and bounds, is not unfinished. Asked first: bytes that arrive
  // between the two calls then count too early for a moment, rather than too late for good.
  int unread = 0;
  if (closed_ || ioctl(descriptor_, SIOCINQ, &unread) != 0) return 0;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received)) return 0;
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - opened_).count();
  const auto arrived =
      static_cast<int64_t>(info.tcpi_bytes_received) - unread - kPingsPerSecond * age;
  // Unused allowance is not carried over.
  const bool pardoned = receiving_ == 0 && now < pardoned_until_;
  if (pardoned || arrived < counted_off_) counted_off_ = arrived;
  unfinished_ = arrived - counted_off_;
  return unfinished_;
}

void Connection::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  if (descriptor_ >= 0) shutdown(descriptor_, SHUT_RDWR);
}

void Connection::Reset() {
  MutexLock lock(mu_);
  closed_ = true;
  if (descriptor_ >= 0) Disconnect(descriptor_);
}

void Connection::Release() {
  MutexLock lock(mu_);
  closed_ = true;
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

// ---- Connections

std::variant<Connections::Admitted, RefusedConnection> Connections::Add(
    int socket, const sockaddr_storage& from) {
  PeerName peer = NameOfPeer(from);
  MutexLock lock(mu_);
  if (static_cast<int64_t>(by_id_.size()) >= limits_.total) return RefusedConnection::kTooMany;
  if (!peer.host.empty()) {
    const auto found = hosts_.find(peer.host);
    if (found != hosts_.end() && found->second.connections >= limits_.per_host) {
      return RefusedConnection::kTooManyOfHost;
    }
  }
  const int descriptor = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return RefusedConnection::kNoDescriptor;
  if (new_ones_ >= limits_.new_ones) {
    if (const auto oldest = TakeOldestNew()) {
      metrics_.ConnectionRefused(RefusedConnection::kTooManyNew);
      oldest->Close();
    }
  }
  std::shared_ptr<Host> host;
  if (!peer.host.empty()) {
    HostEntry& entry = hosts_[peer.host];
    ++entry.connections;
    host = entry.host;
  }
  auto connection = std::make_shared<Connection>(descriptor, peer.name, peer.host, std::move(host),
                                                 limits_.secured);
  const uint64_t id = ++last_id_;
  if (!peer.host.empty()) {
    by_name_[peer.name] = {id, connection};
    hosts_[peer.host].new_ones.emplace(id, connection);
    ++new_ones_;
  }
  by_id_.emplace(id, connection);
  metrics_.ConnectionOpened();
  return Admitted{id, descriptor, std::move(connection)};
}

// Who opens many connections and asks nothing displaces its own, not other hosts'.
std::shared_ptr<Connection> Connections::TakeOldestNew() {
  const auto most =
      std::max_element(hosts_.begin(), hosts_.end(), [](const auto& a, const auto& b) {
        return a.second.new_ones.size() < b.second.new_ones.size();
      });
  if (most == hosts_.end() || most->second.new_ones.empty()) return nullptr;
  --new_ones_;
  return std::move(most->second.new_ones.extract(most->second.new_ones.begin()).mapped());
}

void Connections::Settle(const Connection& connection, uint64_t id) {
  const auto host = hosts_.find(connection.address());
  if (host != hosts_.end() && host->second.new_ones.erase(id) > 0) --new_ones_;
}

void Connections::CloseSilent(TimePoint now) {
  std::vector<std::shared_ptr<Connection>> silent;
  {
    MutexLock lock(mu_);
    for (auto& [host, entry] : hosts_) {
      for (auto it = entry.new_ones.begin(); it != entry.new_ones.end();) {
        const auto limit = it->second->handed_over() ? limits_.first_call : limits_.handshake;
        if (limit.count() == 0 || now - it->second->opened() < limit) {
          ++it;
          continue;
        }
        silent.push_back(std::move(it->second));
        it = entry.new_ones.erase(it);
        --new_ones_;
      }
    }
  }
  for (const auto& connection : silent) {
    metrics_.ConnectionRefused(RefusedConnection::kSilent);
    connection->Close();
  }
}

void Connections::Remove(uint64_t id) {
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mu_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    connection = std::move(found->second);
    by_id_.erase(found);
    if (!connection->address().empty()) {
      Settle(*connection, id);
      const auto host = hosts_.find(connection->address());
      if (--host->second.connections == 0) hosts_.erase(host);
      // A new connection from the same port may have taken over the name.
      const auto named = by_name_.find(connection->name());
      if (named != by_name_.end() && named->second.id == id) by_name_.erase(named);
    }
    metrics_.ConnectionClosed();
  }
  connection->Release();
}

std::shared_ptr<Connection> Connections::ForCall(std::string_view name) {
  MutexLock lock(mu_);
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return nullptr;
  Named& named = found->second;
  if (!std::exchange(named.called, true)) Settle(*named.connection, named.id);
  return named.connection;
}

std::vector<std::shared_ptr<Connection>> Connections::All() const {
  std::vector<std::shared_ptr<Connection>> connections;
  MutexLock lock(mu_);
  connections.reserve(by_id_.size());
  for (const auto& [id, connection] : by_id_) connections.push_back(connection);
  return connections;
}

void Connections::BoundUnfinished(int64_t limit, const Moment& moment) {
  int64_t total = 0;
  std::vector<std::pair<int64_t, std::shared_ptr<Connection>>> keeping;
  for (std::shared_ptr<Connection>& connection : All()) {
    const int64_t bytes = connection->Unfinished(moment.now);
    if (connection->SendsEndlessHeaders(moment)) {
      Expel(*connection, bytes, "headers without end");
      continue;
    }
    if (bytes == 0) continue;
    total += bytes;
    keeping.emplace_back(bytes, std::move(connection));
  }
  if (total > limit) {
    std::sort(keeping.begin(), keeping.end(),
              [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [bytes, connection] : keeping) {
      if (total <= limit) break;
      Expel(*connection, bytes, "most that is not whole, and too much of it in all");
      total -= bytes;
    }
  }
  metrics_.ArrivingBytes(total - std::exchange(unfinished_, total));
}

bool Connections::CloseLargest() {
  std::shared_ptr<Connection> largest;
  for (std::shared_ptr<Connection>& connection : All()) {
    if (largest == nullptr || connection->last_unfinished() > largest->last_unfinished()) {
      largest = std::move(connection);
    }
  }
  if (largest == nullptr || largest->last_unfinished() == 0) return false;
  Expel(*largest, largest->last_unfinished(), "most that is not whole, and no memory left");
  return true;
}

void Connections::Expel(Connection& connection, int64_t bytes, std::string_view why) {
  connection.Reset();
  connection.Unfinished(std::chrono::steady_clock::now());  // none any more
  metrics_.ConnectionExpelled();
  LogWarning("connection closed", {{"peer", connection.name()}, {"why", why}, {"bytes", bytes}});
}

void Connections::CloseAll() {
  for (const auto& connection : All()) connection->Close();
}

int64_t Connections::open() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(by_id_.size());
}

}  // namespace castor::server
