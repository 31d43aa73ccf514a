#include "server/transport/connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "server/metrics/metrics.h"
#include "server/transport/bind.h"
#include "tests/support/fake_engine.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

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
    const sockaddr_storage to = Address(AF_INET, "127.0.0.1", listening_->port());
    EXPECT_EQ(connect(peer_, reinterpret_cast<const sockaddr*>(&to), sizeof(sockaddr_in)), 0);
    while ((ours_ = accept(listening_->descriptors()[0], nullptr, nullptr)) < 0) {
    }
  }
  ~Pair() {
    close(peer_);
    close(ours_);
  }

  int ours() const { return ours_; }
  // What the peer sends, read at once, as gRPC does.
  void Send(size_t bytes) {
    SendUnread(bytes);
    for (std::string read(bytes, '\0'); bytes > 0;) {
      const ssize_t got = recv(ours_, read.data(), bytes, 0);
      ASSERT_GT(got, 0);
      bytes -= static_cast<size_t>(got);
    }
  }
  void SendUnread(size_t bytes) {
    const std::string zeros(bytes, '\0');
    ASSERT_EQ(send(peer_, zeros.data(), zeros.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  // What we send, as much as the kernel takes while the peer reads nothing.
  size_t Answer(size_t bytes) {
    const std::string zeros(bytes, '\0');
    size_t sent = 0;
    for (ssize_t got; sent < bytes && (got = send(ours_, zeros.data(), bytes - sent,
                                                  MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;) {
      sent += static_cast<size_t>(got);
    }
    return sent;
  }
  // What the peer reads until the end of the stream; -1: the connection was reset.
  int64_t PeerReadsAll() {
    int64_t all = 0;
    for (std::string read(64 << 10, '\0');;) {
      const ssize_t got = recv(peer_, read.data(), read.size(), 0);
      if (got < 0) return -1;
      if (got == 0) return all;
      all += got;
    }
  }
  void PeerCloses() { ::shutdown(peer_, SHUT_RDWR); }
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
  const std::unique_ptr<ListeningSockets> listening_;
  int peer_ = -1;
  int ours_ = -1;
};

class ConnectionsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Connection> Admit(Connections& connections, const Pair& pair,
                                    const char* host = "10.0.0.1") {
    const sockaddr_storage from = Address(AF_INET, host, ++port_);
    EXPECT_EQ(connections.Add(pair.ours(), from), std::nullopt);
    return connections.ForCall(NameOfPeer(from).name);
  }

  FakeEngine engine_;
  Metrics metrics_{engine_};
  int port_ = 1000;
};

// An attacker with many sockets displaces its own.
TEST_F(ConnectionsTest, OfTooManyNewOnesTheOldestOfTheHostWithMostIsClosed) {
  Connections connections({.total = 100, .per_host = 100, .new_connections = 3}, &metrics_);
  const Pair good, first, second, third, fourth;
  const auto add = [&](const Pair& pair, const char* host) {
    const sockaddr_storage from = Address(AF_INET, host, ++port_);
    EXPECT_EQ(connections.Add(pair.ours(), from), std::nullopt);
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

TEST_F(ConnectionsTest, NewOnesHaveTimeForACall) {
  Connections connections({.total = 100, .per_host = 100, .first_call = seconds(60)}, &metrics_);
  const Pair mute, called;
  EXPECT_EQ(connections.Add(mute.ours(), Address(AF_INET, "10.0.0.1", ++port_)), std::nullopt);
  Admit(connections, called);
  const auto now = steady_clock::now();
  connections.Watch(now + seconds(59));
  EXPECT_FALSE(mute.PeerHasEnded());
  connections.Watch(now + seconds(61));
  EXPECT_TRUE(mute.PeerSeesTheEnd());
  connections.Watch(now + std::chrono::hours(100));
  EXPECT_FALSE(called.PeerHasEnded());
}

TEST_F(ConnectionsTest, CountsWhoSentSomethingButMadeNoCall) {
  Connections connections({.total = 100, .per_host = 100}, &metrics_);
  Pair probing, greeting, calling;
  const auto end = [&](Pair& pair) {
    pair.PeerCloses();
    ::shutdown(pair.ours(), SHUT_RDWR);
    connections.Watch(steady_clock::now());
  };
  const auto counted = [&] {
    return metrics_.Page().find("castor_connections_refused_total{cause=\"no_call\"} 1\n") !=
           std::string::npos;
  };
  EXPECT_EQ(connections.Add(probing.ours(), Address(AF_INET, "10.0.0.1", ++port_)), std::nullopt);
  EXPECT_EQ(connections.Add(greeting.ours(), Address(AF_INET, "10.0.0.1", ++port_)), std::nullopt);
  Admit(connections, calling);
  calling.Send(10);
  greeting.Send(10);
  end(probing);
  end(calling);
  EXPECT_FALSE(counted());
  end(greeting);
  EXPECT_TRUE(counted());
  EXPECT_EQ(connections.open(), 0);
}

TEST_F(ConnectionsTest, CreditIsUsedUpOnce) {
  Connections connections({.total = 1, .per_host = 1}, &metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  const auto now = steady_clock::now();
  EXPECT_FALSE(connection->Misbehaved(Connection::kMaxCredit - 1, now));
  connection->Answered(now);
  EXPECT_FALSE(connection->Misbehaved(1, now));
  EXPECT_TRUE(connection->Misbehaved(1, now));
  EXPECT_FALSE(connection->Misbehaved(1, now));
  connection->Reset();
  EXPECT_TRUE(pair.PeerSeesTheEnd());
}

TEST_F(ConnectionsTest, CreditComesBackWithTime) {
  Connections connections({.total = 1, .per_host = 1}, &metrics_);
  Pair pair;
  const auto connection = Admit(connections, pair);
  auto now = steady_clock::now();
  for (int second = 0; second < 100; ++second) {
    EXPECT_FALSE(connection->Misbehaved(Connection::kCreditPerSecond, now += seconds(1)));
  }
}

TEST_F(ConnectionsTest, ClosesWhoSendsWithoutEndAndNoCall) {
  Connections connections({.total = 3, .per_host = 3}, &metrics_);
  Pair flooding;
  Pair pinging;
  Pair uploading;
  Admit(connections, flooding);
  Admit(connections, pinging);
  ASSERT_TRUE(Admit(connections, uploading)->EnterCall(1));
  for (int look = 0; look < Connection::kLooks; ++look) {
    EXPECT_FALSE(flooding.PeerHasEnded());
    flooding.Send(500'000);
    uploading.Send(500'000);
    pinging.Send(17);
    connections.Watch(steady_clock::now());
  }
  EXPECT_TRUE(flooding.PeerSeesTheEnd());
  EXPECT_FALSE(pinging.PeerHasEnded());
  EXPECT_FALSE(uploading.PeerHasEnded());
}

// A call that ends, and bytes that stop coming, begin the count anew.
TEST_F(ConnectionsTest, WhoPausesOrCallsIsNoFlood) {
  Connections connections({.total = 2, .per_host = 2}, &metrics_);
  Pair pausing;
  Pair calling;
  Admit(connections, pausing);
  const auto caller = Admit(connections, calling);
  for (int look = 0; look < 3 * Connection::kLooks; ++look) {
    if (look % (Connection::kLooks - 1) != 0) {
      pausing.Send(500'000);
    } else {
      ASSERT_TRUE(caller->EnterCall(1));
      caller->LeaveCall();
    }
    calling.Send(500'000);
    connections.Watch(steady_clock::now());
  }
  EXPECT_FALSE(pausing.PeerHasEnded());
  EXPECT_FALSE(calling.PeerHasEnded());
}

// As gRPC does at the end of a connection. Without us the kernel would answer what the peer sends
// with a reset, and the peer would lose what it has not read.
TEST_F(ConnectionsTest, WhoSendsAfterTheEndStillReadsItsAnswer) {
  Connections connections({.total = 1, .per_host = 1}, &metrics_);
  Pair pair;
  Admit(connections, pair);
  const size_t sent = pair.Answer(1 << 20);
  ASSERT_GT(sent, size_t{100'000});
  EXPECT_EQ(::shutdown(pair.ours(), SHUT_RDWR), 0);
  pair.SendUnread(1000);
  pair.SendUnread(1000);
  EXPECT_EQ(pair.PeerReadsAll(), static_cast<int64_t>(sent));
}

TEST_F(ConnectionsTest, OtherSocketsAreShutDownAsTheyAsk) {
  Pair pair;
  EXPECT_EQ(::shutdown(pair.ours(), SHUT_RDWR), 0);
  char byte;
  EXPECT_EQ(recv(pair.ours(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_NE(::shutdown(-1, SHUT_RDWR), 0);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(ConnectionsTest, LingersUntilThePeerHasHadTimeToTakeItsAnswer) {
  Connections connections({.total = 2, .per_host = 2}, &metrics_);
  Pair answered;
  Pair idle;
  const auto connection = Admit(connections, answered);
  Admit(connections, idle);
  const auto now = steady_clock::now();
  connection->Answered(now);
  connections.Watch(now + Connection::kMaxLinger);
  EXPECT_FALSE(answered.PeerHasEnded());  // it is not at its end
  connection->HalfClose();
  ::shutdown(idle.ours(), SHUT_RDWR);
  EXPECT_FALSE(connection->Lingered(now + Connection::kLinger / 2));
  EXPECT_TRUE(connection->Lingered(now + Connection::kLinger));
  EXPECT_TRUE(connections.All().back()->Lingered(now) || connections.All().front()->Lingered(now));
}

TEST_F(ConnectionsTest, TellsAtTheEndWhoHasNotTakenItsAnswer) {
  Connections connections({.total = 3, .per_host = 3}, &metrics_);
  Pair deaf;
  Pair late;
  Pair idle;
  const auto since = steady_clock::now();
  Admit(connections, deaf)->Answered(since);
  Admit(connections, late)->Answered(since);
  Admit(connections, idle);
  while (deaf.Answer(1 << 20) > 0) {
  }
  const size_t sent = late.Answer(1 << 20);
  // Closes as soon as it has read all.
  std::thread reader([&] {
    EXPECT_EQ(late.PeerReadsAll(), static_cast<int64_t>(sent));
    late.PeerCloses();
  });
  connections.CloseAll(steady_clock::now() + 2 * Connection::kLinger);
  EXPECT_EQ(connections.undelivered(), 1);
  connections.CloseAll(steady_clock::now());  // which counts nobody twice
  EXPECT_EQ(connections.undelivered(), 1);
  reader.join();
  EXPECT_TRUE(idle.PeerSeesTheEnd());
}

}  // namespace
}  // namespace castor::server
