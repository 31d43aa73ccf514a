#include "server/transport/connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "server/metrics.h"
#include "server/transport/bind.h"
#include "server/transport/memory_guard.h"
#include "tests/support/fake_engine.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

Moment Now() { return {steady_clock::now(), 0}; }

sockaddr_storage Address(int family, const char* host, int port) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
    v4->sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(family, host, &v4->sin_addr);
  } else if (family == AF_INET6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    inet_pton(family, host, &v6->sin6_addr);
  }
  return address;
}

TEST(PeerNameTest, IsWhatGrpcCallsThePeer) {
  EXPECT_EQ(NameOfPeer(Address(AF_INET, "127.0.0.1", 4711)).name, "ipv4:127.0.0.1:4711");
  EXPECT_EQ(NameOfPeer(Address(AF_INET6, "::1", 4711)).name, "ipv6:%5B::1%5D:4711");
  EXPECT_EQ(NameOfPeer(Address(AF_INET6, "::ffff:10.1.2.3", 80)).name, "ipv4:10.1.2.3:80");
  EXPECT_EQ(NameOfPeer(Address(AF_UNIX, "", 0)).name, "");
}

// The two ends of a TCP connection over loopback.
class Pair {
 public:
  Pair() : listening_(*ListeningSockets::Open("127.0.0.1:0")) {
    peer_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_storage to = Address(AF_INET, "127.0.0.1", listening_.port());
    EXPECT_EQ(connect(peer_, reinterpret_cast<const sockaddr*>(&to), sizeof(sockaddr_in)), 0);
    while ((ours_ = accept(listening_.descriptors()[0], nullptr, nullptr)) < 0) {
    }
  }
  ~Pair() {
    close(peer_);
    close(ours_);
  }

  int ours() const { return ours_; }
  void SendUnread(size_t bytes) {
    const std::string zeros(bytes, '\0');
    ASSERT_EQ(send(peer_, zeros.data(), zeros.size(), 0), static_cast<ssize_t>(bytes));
  }
  void Read(size_t bytes) {
    for (std::string read(bytes, '\0'); bytes > 0;) {
      const ssize_t got = recv(ours_, read.data(), bytes, 0);
      ASSERT_GT(got, 0);
      bytes -= static_cast<size_t>(got);
    }
  }
  // Reads at once, as gRPC does: unread bytes would fill the window, and TCP would take no more.
  void Send(size_t bytes) {
    SendUnread(bytes);
    Read(bytes);
  }
  // Whether our end has been shut down.
  bool PeerSeesTheEnd() const {
    const timeval patience{10, 0};
    setsockopt(peer_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    char byte;
    const ssize_t got = recv(peer_, &byte, 1, 0);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

  // The same, at once.
  bool PeerHasEnded() const {
    char byte;
    return recv(peer_, &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  ListeningSockets listening_;
  int peer_ = -1;
  int ours_ = -1;
};

class ConnectionsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Connection> Admit(Connections& connections, const Pair& pair,
                                    const char* host = "10.0.0.1") {
    const sockaddr_storage from = Address(AF_INET, host, ++port_);
    auto added = connections.Add(pair.ours(), from);
    EXPECT_TRUE(std::holds_alternative<Connections::Admitted>(added));
    return connections.ForCall(NameOfPeer(from).name);
  }

  FakeEngine engine_;
  Metrics metrics_{engine_};
  int port_ = 1000;
};

TEST_F(ConnectionsTest, BoundsAllOfThemAndThoseOfOneHost) {
  Connections connections({.total = 3, .per_host = 2}, metrics_);
  Pair pair;
  const auto add = [&](const char* host) {
    return connections.Add(pair.ours(), Address(AF_INET, host, ++port_));
  };
  const auto first = add("10.0.0.1");
  add("10.0.0.1");
  EXPECT_EQ(std::get<RefusedConnection>(add("10.0.0.1")), RefusedConnection::kTooManyOfHost);
  EXPECT_TRUE(std::holds_alternative<Connections::Admitted>(add("10.0.0.2")));
  EXPECT_EQ(std::get<RefusedConnection>(add("10.0.0.3")), RefusedConnection::kTooMany);
  connections.Remove(std::get<Connections::Admitted>(first).id);
  EXPECT_EQ(connections.open(), 2);
  EXPECT_TRUE(std::holds_alternative<Connections::Admitted>(add("10.0.0.1")));
}

// An attacker with many sockets displaces its own.
TEST_F(ConnectionsTest, OfTooManyNewOnesTheOldestOfTheHostWithMostIsClosed) {
  Connections connections({.total = 100, .per_host = 100, .new_ones = 3}, metrics_);
  const Pair good, first, second, third, fourth;
  const auto add = [&](const Pair& pair, const char* host) {
    const sockaddr_storage from = Address(AF_INET, host, ++port_);
    EXPECT_TRUE(std::holds_alternative<Connections::Admitted>(connections.Add(pair.ours(), from)));
    return NameOfPeer(from).name;
  };
  add(good, "10.0.0.1");
  const std::string called = add(first, "10.0.0.2");
  connections.ForCall(called);  // which is not new any more
  add(second, "10.0.0.2");
  add(third, "10.0.0.2");
  add(fourth, "10.0.0.3");
  EXPECT_TRUE(second.PeerSeesTheEnd());
  for (const Pair* pair : {&good, &first, &third, &fourth}) EXPECT_FALSE(pair->PeerHasEnded());
}

TEST_F(ConnectionsTest, NewOnesHaveTimeForAHandshakeAndForACall) {
  Connections connections(
      {.total = 100, .per_host = 100, .handshake = seconds(10), .first_call = seconds(60)},
      metrics_);
  const Pair mute, greeted, called;
  const auto add = [&](const Pair& pair) {
    const sockaddr_storage from = Address(AF_INET, "10.0.0.1", ++port_);
    return std::pair(std::get<Connections::Admitted>(connections.Add(pair.ours(), from)),
                     NameOfPeer(from).name);
  };
  add(mute);
  add(greeted).first.connection->HandedOver();
  connections.ForCall(add(called).second);
  const auto now = steady_clock::now();
  connections.CloseSilent(now + seconds(9));
  EXPECT_FALSE(mute.PeerHasEnded());
  connections.CloseSilent(now + seconds(11));
  EXPECT_TRUE(mute.PeerSeesTheEnd());
  EXPECT_FALSE(greeted.PeerHasEnded());
  connections.CloseSilent(now + seconds(61));
  EXPECT_TRUE(greeted.PeerSeesTheEnd());
  connections.CloseSilent(now + std::chrono::hours(100));
  EXPECT_FALSE(called.PeerHasEnded());
}

TEST_F(ConnectionsTest, CallsAreCountedInUpToTheLimit) {
  Connections connections({.total = 1, .per_host = 1}, metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  EXPECT_TRUE(connection->EnterCall(2));
  EXPECT_TRUE(connection->EnterCall(2));
  EXPECT_FALSE(connection->EnterCall(2));
  connection->LeaveCall();
  EXPECT_TRUE(connection->EnterCall(2));
}

TEST_F(ConnectionsTest, WhoHasUsedUpItsCreditIsDisconnectedOnce) {
  Connections connections({.total = 1, .per_host = 1}, metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  const auto now = steady_clock::now();
  EXPECT_FALSE(connection->Misbehaved(Connection::kMaxCredit - 1, now));
  connection->Answered();
  EXPECT_FALSE(connection->Misbehaved(1, now));
  EXPECT_TRUE(connection->Misbehaved(1, now));
  EXPECT_FALSE(connection->Misbehaved(1, now));
  EXPECT_TRUE(pair.PeerSeesTheEnd());
}

TEST_F(ConnectionsTest, CreditComesBackWithTime) {
  Connections connections({.total = 1, .per_host = 1}, metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  auto now = steady_clock::now();
  for (int second = 0; second < 100; ++second) {
    EXPECT_FALSE(connection->Misbehaved(Connection::kCreditPerSecond, now += seconds(1)));
  }
}

TEST_F(ConnectionsTest, CountsWhatArrivedAndIsNotWhole) {
  Connections connections({.total = 1, .per_host = 1}, metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  const auto now = steady_clock::now();
  pair.Send(100'000);
  EXPECT_EQ(connection->Unfinished(now), 100'000);
  connection->Began(200);
  connection->Finished(98'000);
  EXPECT_EQ(connection->Unfinished(now), 0);
  // Bytes that were announced and did not come give no credit.
  connection->Began(1'000'000);
  EXPECT_EQ(connection->Unfinished(now), 0);
  pair.Send(50'000);
  EXPECT_EQ(connection->Unfinished(now), 50'000);
  // Two messages are open, so each drop forgives half.
  connection->Began(0);
  connection->Dropped(now);
  EXPECT_LT(connection->Unfinished(now), 25'000);
  connection->Dropped(now);
  EXPECT_EQ(connection->Unfinished(now), 0);
}

// A peer that gives up in the middle of a large message, or is refused it, did nothing wrong. It is
// forgiven the bytes that arrived since the last look and those still on their way.
TEST_F(ConnectionsTest, AMessageThatIsGivenUpIsForgiven) {
  Connections connections({.total = 1, .per_host = 1}, metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  connection->Began(100);
  for (int i = 0; i < 60; ++i) pair.Send(50'000);
  const auto now = steady_clock::now();
  connection->Dropped(now);
  EXPECT_EQ(connection->Unfinished(now), 0);
  for (int i = 0; i < 60; ++i) pair.Send(50'000);
  EXPECT_EQ(connection->Unfinished(now + Connection::kPardon / 2), 0);
  pair.Send(50'000);
  EXPECT_GT(connection->Unfinished(now + Connection::kPardon), 0);
}

TEST_F(ConnectionsTest, ClosesWhoKeepsMostUntilTheRestFits) {
  Connections connections({.total = 3, .per_host = 3}, metrics_);
  Pair small;
  Pair large;
  Pair middle;
  Admit(connections, small);
  Admit(connections, large);
  Admit(connections, middle);
  small.Send(10'000);
  large.Send(60'000);
  middle.Send(30'000);
  connections.BoundUnfinished(100'000, Now());  // fits
  EXPECT_NE(metrics_.Page().find("castor_message_bytes{direction=\"in\"} 100000\n"),
            std::string::npos);
  connections.BoundUnfinished(50'000, Now());
  EXPECT_NE(metrics_.Page().find("castor_message_bytes{direction=\"in\"} 40000\n"),
            std::string::npos);
  EXPECT_TRUE(large.PeerSeesTheEnd());
  EXPECT_TRUE(connections.CloseLargest());
  EXPECT_TRUE(middle.PeerSeesTheEnd());
  connections.CloseAll();
  EXPECT_TRUE(small.PeerSeesTheEnd());
}

// What the watch does, every tenth of a second from `*now` on.
void LookFor(milliseconds time, Connections& connections, steady_clock::time_point* now) {
  for (const auto end = *now + time; *now < end; *now += milliseconds(100)) {
    connections.BoundUnfinished(int64_t{1} << 30, {*now, 0});
  }
}

// Without an open message the bytes must be headers, and no call needs so many.
TEST_F(ConnectionsTest, ClosesWhoSendsHeadersWithoutEnd) {
  Connections connections({.total = 2, .per_host = 2}, metrics_);
  Pair uploading;
  Pair flooding;
  Admit(connections, uploading)->Began(100);
  Admit(connections, flooding);
  for (int i = 0; i < 30; ++i) {
    uploading.Send(50'000);
    flooding.Send(50'000);
  }
  auto now = steady_clock::now();
  LookFor(Connection::kPatience + milliseconds(100), connections, &now);
  EXPECT_TRUE(flooding.PeerSeesTheEnd());
  EXPECT_TRUE(connections.CloseLargest());
  EXPECT_TRUE(uploading.PeerSeesTheEnd());
}

// When they cost much memory, there is no time to be sure.
TEST_F(ConnectionsTest, ClosesWhoSendsCostlyHeadersSoon) {
  constexpr int64_t kGrowth = int64_t{200} << 20;
  Connections connections({.total = 2, .per_host = 2}, metrics_);
  Pair bomb;
  Pair beside;
  Admit(connections, bomb);
  const auto other = Admit(connections, beside);
  for (int i = 0; i < 30; ++i) bomb.Send(50'000);
  for (int i = 0; i < 300; ++i) beside.Send(50'000);  // too much for what the process has grown by
  const auto now = steady_clock::now();
  for (int look = 0; look <= Connection::kLooks; ++look) {
    connections.BoundUnfinished(int64_t{1} << 30, {now, look * kGrowth});
  }
  EXPECT_TRUE(bomb.PeerSeesTheEnd());
  EXPECT_GT(other->last_unfinished(), 0);
}

// gRPC reads some MiB of a message before its handler runs and says that a call began.
TEST_F(ConnectionsTest, AMessageWhoseHandlerIsLateIsNoFlood) {
  Connections connections({.total = 1, .per_host = 1}, metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  auto now = steady_clock::now();
  for (int message = 0; message < 3; ++message) {
    for (int i = 0; i < 60; ++i) pair.Send(50'000);
    LookFor(Connection::kPatience - milliseconds(100), connections, &now);
    EXPECT_GT(connection->last_unfinished(), 2'900'000);
    connection->Began(200);
    connection->Finished(3'000'000);
  }
  // A process that stood still did not give the handler time.
  for (int i = 0; i < 60; ++i) pair.Send(50'000);
  for (int look = 0; look < Connection::kLooks; ++look) {
    connections.BoundUnfinished(int64_t{1} << 30, {now += 2 * Connection::kPatience, 0});
  }
  EXPECT_GT(connection->last_unfinished(), 2'900'000);
  connection->Began(200);
  connection->Finished(3'000'000);
  connections.BoundUnfinished(int64_t{1} << 30, {now, 0});
  EXPECT_EQ(connection->last_unfinished(), 0);
}

// The kernel bounds what nobody has read yet; it takes no memory of gRPC's.
TEST_F(ConnectionsTest, BytesInTheKernelAreNotUnfinished) {
  Connections connections({.total = 1, .per_host = 1}, metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  pair.SendUnread(20'000);
  EXPECT_EQ(connection->Unfinished(steady_clock::now()), 0);
  pair.Read(20'000);
  EXPECT_EQ(connection->Unfinished(steady_clock::now()), 20'000);
}

TEST_F(ConnectionsTest, WithoutMemoryTheLargestIsClosed) {
  Connections connections({.total = 1, .per_host = 1}, metrics_);
  Pair pair;
  Admit(connections, pair);
  pair.Send(1000);
  connections.BoundUnfinished(int64_t{1} << 30, Now());
  EXPECT_FALSE(MemoryGuard(int64_t{1} << 50).Look(connections));
  EXPECT_TRUE(MemoryGuard(1).Look(connections));
  EXPECT_TRUE(pair.PeerSeesTheEnd());
}

}  // namespace
}  // namespace castor::server
