#include "server/transport/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
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

// More than what may be on its way of a message whose call was refused: the window of a stream.
constexpr int64_t kMostWithoutCall = 4 << 20;

// Less between two looks is no flood.
constexpr int64_t kTrickle = 256;

int ShutDown(int socket, int how) { return static_cast<int>(syscall(SYS_shutdown, socket, how)); }

// After a shutdown gRPC would still read and parse some MiB that have arrived: a gigabyte of memory
// if each byte is a header. Connecting to nowhere (AF_UNSPEC) resets a TCP connection and drops
// those bytes.
void Disconnect(int socket) {
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  if (connect(socket, &nowhere, sizeof(nowhere)) != 0) ShutDown(socket, SHUT_RDWR);
}

// More than what HTTP/2 sends on its own when a connection ends, which nobody misses.
constexpr int64_t kControlFrames = 1 << 10;

// How often CloseAll looks whether peers are gone.
constexpr std::chrono::milliseconds kLookAgain{10};

// The connections of this process by their sockets, which several descriptors share.
struct Sockets {
  Mutex mu;
  std::unordered_map<ino_t, Connection*> connections ABSL_GUARDED_BY(mu);
};

Sockets& OurSockets() {
  static auto* const sockets = new Sockets;  // gRPC's threads outlive static objects
  return *sockets;
}

ino_t InodeOf(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

bool HalfCloseOurs(int descriptor) {
  const ino_t inode = InodeOf(descriptor);
  Sockets& sockets = OurSockets();
  MutexLock lock(sockets.mu);
  const auto found = sockets.connections.find(inode);
  if (found == sockets.connections.end()) return false;
  found->second->HalfClose();
  return true;
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

Connection::Connection(uint64_t id, int descriptor, std::string name, std::string address,
                       std::shared_ptr<Host> host)
    : id_(id),
      name_(std::move(name)),
      address_(std::move(address)),
      host_(std::move(host)),
      opened_(std::chrono::steady_clock::now()),
      inode_(InodeOf(descriptor)),
      descriptor_(descriptor),
      credited_(opened_) {
  Sockets& sockets = OurSockets();
  MutexLock lock(sockets.mu);
  sockets.connections[inode_] = this;
}

bool Connection::EnterCall(int64_t limit) {
  if (calls_.fetch_add(1, std::memory_order_relaxed) < limit) return true;
  LeaveCall();
  return false;
}

void Connection::Answered(TimePoint now) {
  MutexLock lock(mu_);
  last_answer_ = now;
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
  return true;
}

void Connection::BeginMessage() {
  receiving_.fetch_add(1, std::memory_order_relaxed);
  events_.fetch_add(1, std::memory_order_relaxed);
}

void Connection::EndMessage() {
  receiving_.fetch_sub(1, std::memory_order_relaxed);
  events_.fetch_add(1, std::memory_order_relaxed);
}

std::optional<Connection::Received> Connection::CountReceived() const {
  MutexLock lock(mu_);
  tcp_info info{};
  socklen_t size = sizeof(info);
  int unread = 0;
  if (getsockopt(descriptor_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received)) return {};
  if (ioctl(descriptor_, SIOCINQ, &unread) != 0) return {};
  return Received{static_cast<int64_t>(info.tcpi_bytes_received), unread};
}

// Nothing is taken for what it may not be: of which call a byte is part, gRPC alone knows, and a
// call that is cancelled leaves bytes that never become a message. So any event starts afresh.
int64_t Connection::Look() {
  const std::optional<Received> received = CountReceived();
  if (!received.has_value()) {
    senseless_looks_ = 0;
    return 0;
  }
  const auto [arrived, unread] = *received;
  const int64_t came = arrived - std::exchange(arrived_, arrived);
  const int64_t events = events_.load(std::memory_order_relaxed);
  const bool quiet = events == std::exchange(seen_events_, events);
  const bool receiving = receiving_.load(std::memory_order_relaxed) > 0;
  if (!quiet || !receiving) arrived_before_ = arrived;
  // gRPC may take seconds to parse what it has read, and nothing new fits in behind that.
  const bool sends = came >= kTrickle || unread > 0;
  const bool senseless =
      quiet && sends && !receiving && calls_.load(std::memory_order_relaxed) == 0;
  senseless_looks_ = senseless ? senseless_looks_ + 1 : 0;
  senseless_bytes_ = senseless ? senseless_bytes_ + came : 0;
  return std::max<int64_t>(arrived - arrived_before_, 0);  // a reset forgets what has arrived
}

bool Connection::SendsWithoutCalls() const {
  return senseless_looks_ >= kLooks && senseless_bytes_ > kMostWithoutCall;
}

void Connection::Close() {
  MutexLock lock(mu_);
  if (descriptor_ >= 0) ShutDown(descriptor_, SHUT_RDWR);
}

void Connection::HalfClose() {
  MutexLock lock(mu_);
  if (half_closed_ != TimePoint::max()) return;
  half_closed_ = std::chrono::steady_clock::now();
  if (address_.empty()) last_answer_ = half_closed_;  // unix sockets' calls are not known
  if (descriptor_ < 0) return;
  ShutDown(descriptor_, SHUT_WR);
  // From now on we say when it has had its time, and whether it took everything.
  const int unlimited = 0;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_USER_TIMEOUT, &unlimited, sizeof(unlimited));
}

int64_t Connection::Unacknowledged() const {
  int bytes = 0;
  if (descriptor_ < 0 || ioctl(descriptor_, SIOCOUTQ, &bytes) != 0) return 0;
  return std::max(bytes - 1, 0);  // the end of the stream counts as one
}

bool Connection::DropUnread() {
  constexpr int kMostReads = 256;  // of a peer that sends as fast as we read
  std::array<char, 16 << 10> dropped;
  int reads = 0;
  while (reads < kMostReads &&
         recv(descriptor_, dropped.data(), dropped.size(), MSG_DONTWAIT) > 0) {
    ++reads;
  }
  return reads > 0;
}

bool Connection::Owes(int64_t bytes) const {
  return bytes > kControlFrames || (bytes > 0 && half_closed_ < last_answer_ + kMaxLinger);
}

bool Connection::Lingered(TimePoint now) {
  MutexLock lock(mu_);
  if (half_closed_ == TimePoint::max() || descriptor_ < 0) return false;
  const int64_t bytes = Unacknowledged();
  const bool takes = bytes != std::exchange(unacknowledged_, bytes) && Owes(bytes);
  // Who still sends may be reading what its system has, and says that it may be sent more.
  if (DropUnread() || takes) busy_ = now;
  return now >= std::max(busy_, last_answer_) + (Owes(bytes) ? kMaxLinger : kLinger);
}

bool Connection::CutOff() {
  MutexLock lock(mu_);
  const bool owes = !std::exchange(cut_off_, true) && Owes(Unacknowledged());
  if (descriptor_ >= 0) ShutDown(descriptor_, SHUT_RDWR);
  return owes;
}

void Connection::Reset() {
  MutexLock lock(mu_);
  if (descriptor_ >= 0) Disconnect(descriptor_);
}

void Connection::Release() {
  {
    Sockets& sockets = OurSockets();
    MutexLock lock(sockets.mu);
    const auto found = sockets.connections.find(inode_);
    if (found != sockets.connections.end() && found->second == this) {
      sockets.connections.erase(found);
    }
  }
  MutexLock lock(mu_);
  if (descriptor_ < 0) return;
  // To close a socket with unread bytes resets the connection.
  if (half_closed_ != TimePoint::max()) DropUnread();
  close(std::exchange(descriptor_, -1));
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
  const uint64_t id = ++last_id_;
  auto connection =
      std::make_shared<Connection>(id, descriptor, peer.name, peer.host, std::move(host));
  if (!peer.host.empty()) {
    by_name_[peer.name] = connection;
    hosts_[peer.host].new_ones.emplace(id, connection);
    ++new_ones_;
  }
  by_id_.emplace(id, connection);
  metrics_.ConnectionOpened();
  return Admitted{descriptor, std::move(connection)};
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

void Connections::Settle(const Connection& connection) {
  const auto host = hosts_.find(connection.address());
  if (host != hosts_.end() && host->second.new_ones.erase(connection.id()) > 0) --new_ones_;
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
      Settle(*connection);
      const auto host = hosts_.find(connection->address());
      if (--host->second.connections == 0) hosts_.erase(host);
      // A new connection from the same port may have taken over the name.
      const auto named = by_name_.find(connection->name());
      if (named != by_name_.end() && named->second == connection) by_name_.erase(named);
    }
    metrics_.ConnectionClosed();
  }
  connection->Release();
}

std::shared_ptr<Connection> Connections::ForCall(std::string_view name) {
  MutexLock lock(mu_);
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return nullptr;
  Settle(*found->second);
  return found->second;
}

std::vector<std::shared_ptr<Connection>> Connections::All() const {
  std::vector<std::shared_ptr<Connection>> connections;
  MutexLock lock(mu_);
  connections.reserve(by_id_.size());
  for (const auto& [id, connection] : by_id_) connections.push_back(connection);
  return connections;
}

void Connections::Look() {
  int64_t arriving = 0;
  for (const auto& connection : All()) {
    arriving += connection->Look();
    if (!connection->SendsWithoutCalls()) continue;
    metrics_.ConnectionExpelled();
    LogWarning("connection closed",
               {{"peer", connection->name()}, {"why", "it sends without end, and no call"}});
    connection->Reset();
  }
  metrics_.ArrivingBytes(arriving - std::exchange(arriving_, arriving));
}

void Connections::CloseLingering(TimePoint now) {
  for (const auto& connection : All()) {
    if (connection->Lingered(now) && connection->CutOff()) ++untaken_;
  }
}

void Connections::CloseAll(TimePoint deadline) {
  for (const auto& connection : All()) connection->HalfClose();
  for (TimePoint now; (now = std::chrono::steady_clock::now()) < deadline;) {
    const auto left = All();
    if (std::all_of(left.begin(), left.end(),
                    [now](const auto& connection) { return connection->Lingered(now); })) {
      break;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  for (const auto& connection : All()) {
    if (connection->CutOff()) ++untaken_;
  }
}

int64_t Connections::open() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(by_id_.size());
}

}  // namespace castor::server

// gRPC ends every connection by shutting it down in both directions: after its last call when the
// server drains or the connection is old, too. From then on the kernel answers what the peer still
// sends, WINDOW_UPDATE frames mostly, with a reset, and the peer loses what it has not read of its
// answer. No setting changes that. But libraries find this function before that of the C library,
// and of a connection of ours it ends our side only; Connections closes it later.
extern "C" __attribute__((visibility("default"))) int shutdown(int socket, int how) noexcept {
  if (how == SHUT_RDWR && castor::server::HalfCloseOurs(socket)) return 0;
  return castor::server::ShutDown(socket, how);
}
