#include "server/transport/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/logging.h"

namespace castor::server {
namespace {

// More than the rest of a message whose call was refused: the window of a stream.
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

// More than the frames that HTTP/2 sends by itself at a connection's end, which no caller needs.
constexpr int kControlFrames = 1 << 10;

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
  if (address.ss_family == AF_UNIX) return {};
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  const bool is_v4 = address.ss_family == AF_INET;
  const int port = ntohs(v4.sin_port);  // which has the same offset in both families
  char host[INET6_ADDRSTRLEN];
  inet_ntop(address.ss_family, is_v4 ? static_cast<const void*>(&v4.sin_addr) : &v6.sin6_addr, host,
            sizeof(host));
  if (is_v4 || IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    absl::string_view at = host;
    absl::ConsumePrefix(&at, "::ffff:");  // gRPC names mapped ones by their IPv4 address
    return {absl::StrCat("ipv4:", at, ":", port), std::string(at)};
  }
  // A URI's path, in which brackets are escaped. A scope follows an escaped percent sign.
  const std::string scope = v6.sin6_scope_id == 0 ? "" : absl::StrCat("%25", v6.sin6_scope_id);
  return {absl::StrCat("ipv6:%5B", host, scope, "%5D:", port), host};
}

// ---- Connection

Connection::Connection(uint64_t id, int descriptor, PeerName peer, std::shared_ptr<Host> host)
    : id_(id),
      peer_(std::move(peer)),
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
  called_.store(true, std::memory_order_relaxed);
  if (calls_.fetch_add(1, std::memory_order_relaxed) < limit) return true;
  LeaveCall();
  return false;
}

void Connection::Answered(TimePoint now) {
  MutexLock lock(mu_);
  busy_ = now;
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

std::optional<int64_t> Connection::Received() {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  constexpr uint8_t kFinWait2 = 5;  // TCP_FIN_WAIT2, which <linux/tcp.h> lacks
  window_ = info.tcpi_snd_wnd;
  most_window_ = std::max(most_window_, window_);
  end_acknowledged_ = info.tcpi_state == kFinWait2;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

bool Connection::SeemsRead() {
  constexpr int64_t kPart = 8;
  return Received().has_value() && end_acknowledged_ && window_ > 0 &&
         window_ >= most_window_ - most_window_ / kPart;
}

// Only gRPC knows which call a byte belongs to, and a cancelled call leaves bytes on their way. So
// every call resets the count.
bool Connection::SendsWithoutCalls() {
  MutexLock lock(mu_);
  const std::optional<int64_t> received = Received();
  int unread = 0;
  if (!received.has_value() || ioctl(descriptor_, SIOCINQ, &unread) != 0) return false;
  const int64_t came = *received - std::exchange(received_, *received);
  // gRPC may take seconds to parse what it has read, and nothing new fits in behind that.
  const bool sends = came >= kTrickle || unread > 0;
  const bool called = called_.exchange(false, std::memory_order_relaxed);
  const bool senseless = sends && !called && calls_.load(std::memory_order_relaxed) == 0;
  senseless_looks_ = senseless ? senseless_looks_ + 1 : 0;
  senseless_bytes_ = senseless ? senseless_bytes_ + came : 0;
  return senseless_looks_ >= kLooks && senseless_bytes_ > kMostWithoutCall;
}

bool Connection::HasSent() {
  MutexLock lock(mu_);
  return Received().value_or(0) > 1;  // the end of the stream counts as one
}

void Connection::Close() {
  MutexLock lock(mu_);
  if (descriptor_ >= 0) ShutDown(descriptor_, SHUT_RDWR);
}

void Connection::HalfClose() {
  MutexLock lock(mu_);
  if (half_closed_ != TimePoint::max()) return;
  half_closed_ = std::chrono::steady_clock::now();
  if (peer_.host.empty()) busy_ = half_closed_;  // unix sockets' calls are not known
  if (descriptor_ < 0) return;
  ShutDown(descriptor_, SHUT_WR);
  // From now on we say when it has had its time, and whether it took everything.
  const int unlimited = 0;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_USER_TIMEOUT, &unlimited, sizeof(unlimited));
}

int64_t Connection::Unacknowledged() const {
  int bytes = 0;
  if (descriptor_ < 0 || ioctl(descriptor_, SIOCOUTQ, &bytes) != 0) return 0;
  return bytes > kControlFrames ? bytes : 0;
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

bool Connection::Lingered(TimePoint now) {
  MutexLock lock(mu_);
  if (half_closed_ == TimePoint::max() || descriptor_ < 0) return false;
  const int64_t bytes = Unacknowledged();
  const bool takes = bytes != std::exchange(unacknowledged_, bytes) && bytes > 0;
  // A peer that still sends may be reading: its WINDOW_UPDATE frames ask for more.
  if (DropUnread() || takes) busy_ = now;
  if (bytes > 0) return now >= busy_ + kMaxLinger;
  return now >= busy_ + kLinger || (now >= busy_ + kIdle && SeemsRead());
}

bool Connection::CutOff() {
  MutexLock lock(mu_);
  const bool owes = !std::exchange(cut_off_, true) && Unacknowledged() > 0;
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

Connections::Connections(Limits limits, Metrics* metrics)
    : limits_(limits), metrics_(metrics), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Connections::~Connections() {
  if (ok()) close(epoll_);
}

std::optional<RefusedConnection> Connections::Add(int socket, const sockaddr_storage& from) {
  RemoveEnded();  // whose places are free
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
  if (new_connections_ >= limits_.new_connections) {
    if (const auto oldest = TakeOldestNew()) {
      if (metrics_ != nullptr) metrics_->ConnectionRefused(RefusedConnection::kTooManyNew);
      oldest->Close();
    }
  }
  const uint64_t id = ++last_id_;
  HostEntry* const host = peer.host.empty() ? nullptr : &hosts_[peer.host];
  auto connection =
      std::make_shared<Connection>(id, descriptor, peer, host == nullptr ? nullptr : host->host);
  if (host != nullptr) {
    ++host->connections;
    by_name_[peer.name] = connection;
    host->new_connections.emplace(id, connection);
    ++new_connections_;
  }
  by_id_.emplace(id, std::move(connection));
  if (metrics_ != nullptr) metrics_->ConnectionOpened();
  // No event is requested: epoll reports the end of a connection in any case.
  epoll_event event{};
  event.data.u64 = id;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
  return std::nullopt;
}

// A host that opens many connections without a call displaces its own, not those of other hosts.
std::shared_ptr<Connection> Connections::TakeOldestNew() {
  const auto most =
      std::max_element(hosts_.begin(), hosts_.end(), [](const auto& a, const auto& b) {
        return a.second.new_connections.size() < b.second.new_connections.size();
      });
  if (most == hosts_.end() || most->second.new_connections.empty()) return nullptr;
  --new_connections_;
  return std::move(
      most->second.new_connections.extract(most->second.new_connections.begin()).mapped());
}

bool Connections::MarkEstablished(const Connection& connection) {
  const auto host = hosts_.find(connection.peer().host);
  if (host == hosts_.end() || host->second.new_connections.erase(connection.id()) == 0)
    return false;
  --new_connections_;
  return true;
}

void Connections::RemoveEnded() {
  std::array<epoll_event, 64> events;
  int count;
  do {
    count = epoll_wait(epoll_, events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) Remove(events[static_cast<size_t>(i)].data.u64);
  } while (count == static_cast<int>(events.size()));
}

void Connections::Remove(uint64_t id) {
  std::shared_ptr<Connection> connection;
  bool was_new = false;
  {
    MutexLock lock(mu_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    connection = std::move(found->second);
    by_id_.erase(found);
    if (!connection->peer().host.empty()) {
      was_new = MarkEstablished(*connection);
      const auto host = hosts_.find(connection->peer().host);
      if (--host->second.connections == 0) hosts_.erase(host);
      // A new connection from the same port may have taken over the name.
      const auto named = by_name_.find(connection->peer().name);
      if (named != by_name_.end() && named->second == connection) by_name_.erase(named);
    }
    if (metrics_ != nullptr) metrics_->ConnectionClosed();
  }
  // gRPC does not say why it ended a handshake.
  if (was_new && metrics_ != nullptr && connection->HasSent()) {
    metrics_->ConnectionRefused(RefusedConnection::kNoCall);
  }
  connection->Release();
}

std::shared_ptr<Connection> Connections::ForCall(std::string_view name) {
  MutexLock lock(mu_);
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return nullptr;
  MarkEstablished(*found->second);
  return found->second;
}

std::vector<std::shared_ptr<Connection>> Connections::All() const {
  std::vector<std::shared_ptr<Connection>> connections;
  MutexLock lock(mu_);
  connections.reserve(by_id_.size());
  for (const auto& [id, connection] : by_id_) connections.push_back(connection);
  return connections;
}

std::chrono::milliseconds Connections::Watch(TimePoint now) {
  RemoveEnded();
  CloseSilent(now);
  constexpr std::chrono::milliseconds kIdle{1000};
  const auto connections = All();
  for (const auto& connection : connections) {
    if (connection->SendsWithoutCalls()) {
      if (metrics_ != nullptr) metrics_->ConnectionExpelled();
      LogWarning("connection closed",
                 {{"peer", connection->peer().name}, {"why", "sends data but starts no call"}});
      connection->Reset();
    }
    if (connection->Lingered(now) && connection->CutOff()) ++undelivered_;
  }
  return connections.empty() ? kIdle : kWatchEvery;
}

void Connections::CloseSilent(TimePoint now) {
  if (limits_.first_call.count() == 0) return;
  MutexLock lock(mu_);
  for (auto& [host, entry] : hosts_) {
    Ages& ages = entry.new_connections;
    for (; !ages.empty() && now - ages.begin()->second->opened() >= limits_.first_call;
         ages.erase(ages.begin())) {
      if (metrics_ != nullptr) metrics_->ConnectionRefused(RefusedConnection::kSilent);
      ages.begin()->second->Close();
      --new_connections_;
    }
  }
}

void Connections::CloseAll(TimePoint deadline) {
  for (const auto& connection : All()) connection->HalfClose();
  for (TimePoint now; (now = std::chrono::steady_clock::now()) < deadline;) {
    RemoveEnded();
    const auto left = All();
    if (std::all_of(left.begin(), left.end(),
                    [now](const auto& connection) { return connection->Lingered(now); })) {
      break;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  for (const auto& connection : All()) {
    if (connection->CutOff()) ++undelivered_;
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
