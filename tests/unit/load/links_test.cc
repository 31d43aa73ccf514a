// Links against servers in this process, over real sockets: what a server may do to a call.

#include "client/load/drive/links.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "client/load/base/errors.h"
#include "client/load/http2/local_server.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Framed(const std::string& message, uint32_t length, char flag = 0) {
  std::string framed(1, flag);
  for (const int shift : {24, 16, 8, 0}) framed += static_cast<char>(length >> shift);
  return framed + message;
}

std::string Framed(const std::string& message) {
  return Framed(message, static_cast<uint32_t>(message.size()));
}

// Answers with what it was sent.
void Repeat(ServerConnection& connection, int32_t stream, std::string_view, std::string_view body) {
  connection.SubmitMessage(stream, std::string(body));
}

class LinksTest : public ::testing::Test {
 protected:
  static UnaryCall Ask(std::string_view message) {
    UnaryCall call;
    call.path = "/service/Method";
    call.authority = "localhost";
    call.message = message;
    call.timeout = seconds(60);
    return call;
  }

  // Waits until so many calls have ended.
  static void Await(Links& links, size_t count) {
    const auto until = Clock::now() + seconds(30);
    while (links.ended().size() < count) {
      ASSERT_LT(Clock::now(), until) << links.ended().size() << " of " << count;
      links.Flush();
      links.Wait(until);
    }
  }

  // How a call to a server ends that answers it so.
  static UnaryCall Outcome(LocalServer::Handler handler) {
    const LocalServer server(std::move(handler));
    UnaryCall call = Ask("hello");
    Links links({server.target()}, 1);
    links.Start(call);
    Await(links, 1);
    return call;
  }
  static UnaryCall AnsweredWith(const std::string& body) {
    return Outcome([body](ServerConnection& connection, int32_t stream, std::string_view,
                          std::string_view) { connection.SubmitMessage(stream, body); });
  }
};

TEST_F(LinksTest, MessagesComeAndGoWholeThroughAnyWindow) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (const int32_t window : {1, 3, 7, 1000, 1 << 20}) {
    const LocalServer server(Repeat, {.keep_bodies = true, .window = window, .max_streams = 3});
    Links links({server.target()}, 2);
    links.AwaitAll(seconds(10));
    std::vector<std::string> messages(20);
    std::vector<UnaryCall> calls(messages.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      const size_t most = window < 1000 ? 40 : 300'000;
      messages[i].resize(random() % most);
      for (char& c : messages[i]) c = static_cast<char>(random());
      calls[i] = Ask(messages[i]);
      links.Start(calls[i]);
    }
    Await(links, calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(calls[i].status.ok()) << calls[i].status.error_message();
      EXPECT_EQ(calls[i].answer, messages[i]) << window;
    }
  }
}

TEST_F(LinksTest, PathAndMetadataArrive) {
  std::string path;
  const LocalServer server([&path](ServerConnection& connection, int32_t stream,
                                   std::string_view got, std::string_view) {
    path = got;
    connection.SubmitStatus(stream, "5", "not%20here", "");
  });
  const std::vector<std::pair<std::string, std::string>> metadata = {{"castor-tenant", "a"},
                                                                     {"authorization", "Bearer b"}};
  UnaryCall call = Ask("");
  call.metadata = &metadata;
  Links links({server.target()}, 1);
  links.Start(call);
  Await(links, 1);
  EXPECT_EQ(path, "/service/Method");
  EXPECT_EQ(call.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call.status.error_message(), "not here");
}

TEST_F(LinksTest, AnswersThatAreNotAsGrpcHasThemAreErrors) {
  EXPECT_TRUE(AnsweredWith(Framed("answer")).status.ok());
  EXPECT_EQ(AnsweredWith(Framed("answer")).answer, "answer");
  for (const std::string& body :
       {Framed("answer", 5), Framed("answer", 7), Framed("answer") + Framed("more"),
        Framed("answer", 6, 1), std::string("\0\0\0", 3), std::string()}) {
    const UnaryCall call = AnsweredWith(body);
    EXPECT_EQ(call.status.error_code(), grpc::StatusCode::INTERNAL) << body;
    EXPECT_NE(call.done, Clock::time_point());
  }
  EXPECT_EQ(AnsweredWith(Framed("answer", 0xffffffff)).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(LinksTest, AResetIsAStatus) {
  const UnaryCall call =
      Outcome([](ServerConnection& connection, int32_t stream, std::string_view, std::string_view) {
        connection.SubmitReset(stream, NGHTTP2_REFUSED_STREAM);
      });
  EXPECT_EQ(call.status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(LinksTest, ACancelledCallLeavesNothingBehind) {
  const LocalServer server(
      [](ServerConnection& connection, int32_t stream, std::string_view path, std::string_view) {
        if (path == "/service/Method") LocalServer::Echo(connection, stream, path, "");
      },
      {.max_streams = 2});
  Links links({server.target()}, 1);
  // More than the server lets in: some are cancelled before they are a stream.
  std::vector<UnaryCall> silent(5, Ask("hello"));
  for (const bool sent : {false, true}) {
    for (UnaryCall& call : silent) {
      call.path = "/service/Silent";
      call.Reset();
      links.Start(call);
    }
    if (sent) {
      links.AwaitAll(seconds(10));
      links.Flush();
    }
    for (UnaryCall& call : silent) {
      links.Cancel(call, grpc::Status(grpc::StatusCode::CANCELLED, ""));
    }
    EXPECT_TRUE(links.ended().empty());
  }
  UnaryCall next = Ask("hello");
  links.Start(next);
  Await(links, 1);
  EXPECT_TRUE(next.status.ok()) << next.status.error_message();
}

TEST_F(LinksTest, AServerThatAsksToLeaveLosesNoCall) {
  int requests = 0;
  const LocalServer server([&requests](ServerConnection& connection, int32_t stream,
                                       std::string_view path, std::string_view body) {
    if (++requests % 10 == 0) connection.SubmitLeave();
    LocalServer::Echo(connection, stream, path, body);
  });
  Links links({server.target()}, 1);
  std::vector<UnaryCall> calls(100, Ask("hello"));
  int ok = 0;
  for (UnaryCall& call : calls) {
    links.Start(call);
    Await(links, 1);
    links.ended().clear();
    ok += call.status.ok() ? 1 : 0;
  }
  EXPECT_EQ(ok, 100);
}

// Such as one that a server ends for its age between two calls.
TEST_F(LinksTest, AConnectionThatIsEndedWhileItIsIdleIsReplacedAtOnce) {
  const LocalServer server([](ServerConnection& connection, int32_t stream, std::string_view path,
                              std::string_view body) {
    connection.SubmitLeave();
    LocalServer::Echo(connection, stream, path, body);
  });
  Links links({server.target()}, 1);
  for (int i = 0; i < 20; ++i) {
    UnaryCall call = Ask("hello");
    links.Start(call);
    Await(links, 1);
    links.ended().clear();
    EXPECT_TRUE(call.status.ok()) << call.status.error_message();
    links.Flush();  // nothing is open: this is the connection's end
  }
}

TEST_F(LinksTest, ACallThatFindsNoSuccessorOfAConnectionEnds) {
  const LocalServer server([](ServerConnection& connection, int32_t stream, std::string_view path,
                              std::string_view body) {
    connection.SubmitLeave();
    LocalServer::Echo(connection, stream, path, body);
  });
  Links links({server.target()}, 1);
  UnaryCall first = Ask("hello"), second = Ask("hello");
  links.Start(first);
  Await(links, 1);
  EXPECT_TRUE(first.status.ok());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);  // no further socket
  links.Start(second);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Await(links, 2);
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(LinksTest, AnEndpointThatNobodyServesIsAnError) {
  const std::string path = ::testing::TempDir() + "/castor-links";
  Links links({"unix:" + path}, 1);
  UnaryCall call = Ask("hello");
  links.Start(call);
  Await(links, 1);
  EXPECT_EQ(call.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(call.status.error_message(), "");
  EXPECT_THROW(links.AwaitAll(seconds(0)), ServerError);
}

TEST_F(LinksTest, AConnectionThatBreaksIsReplaced) {
  auto server = std::make_unique<LocalServer>(
      [](ServerConnection&, int32_t, std::string_view, std::string_view) {});
  Links links({server->target()}, 1);
  links.AwaitAll(seconds(10));
  UnaryCall lost = Ask("hello");
  links.Start(lost);
  links.Flush();
  const std::string target = server->target();
  server = nullptr;
  Await(links, 1);
  links.ended().clear();
  EXPECT_EQ(lost.status.error_code(), grpc::StatusCode::UNAVAILABLE);

  const LocalServer successor(LocalServer::Echo, {}, target);
  const auto until = Clock::now() + seconds(30);
  UnaryCall call = Ask("hello");
  do {
    ASSERT_LT(Clock::now(), until);
    call.Reset();
    links.ended().clear();
    links.Wait(Clock::now() + milliseconds(5));
    links.Start(call);
    Await(links, 1);
  } while (!call.status.ok());
}

// The servers that a name stands for at the moment.
class Service {
 public:
  explicit Service(std::vector<std::string> targets) : targets_(std::move(targets)) {}
  void Become(std::vector<std::string> targets) {
    const std::lock_guard lock(mu_);
    targets_ = std::move(targets);
  }
  LinkOptions options() {
    return {.resolve =
                [this](const std::string&) {
                  const std::lock_guard lock(mu_);
                  std::vector<Address> addresses;
                  for (const std::string& target : targets_) {
                    addresses.push_back(Resolve(target).front());
                  }
                  return addresses;
                },
            .spread = milliseconds(10)};
  }

 private:
  std::mutex mu_;
  std::vector<std::string> targets_;
};

// A server that can be told to leave its callers, and counts them.
struct Replica {
  std::atomic<bool> leaves = false;
  std::atomic<int> calls = 0;
  std::unique_ptr<LocalServer> server =
      std::make_unique<LocalServer>([this](ServerConnection& connection, int32_t stream,
                                           std::string_view path, std::string_view body) {
        ++calls;
        if (leaves) connection.SubmitLeave();
        LocalServer::Echo(connection, stream, path, body);
      });
};

TEST_F(LinksTest, EveryServerOfANameGetsCalls) {
  std::array<Replica, 3> replicas;
  Service service(
      {replicas[0].server->target(), replicas[1].server->target(), replicas[2].server->target()});
  Links links({"service:1"}, 1, service.options());
  links.AwaitAll(seconds(10));
  std::vector<UnaryCall> calls(30, Ask("hello"));
  for (UnaryCall& call : calls) links.Start(call);
  Await(links, calls.size());
  for (const Replica& replica : replicas) EXPECT_EQ(replica.calls, 10);
}

TEST_F(LinksTest, ServersThatAreReplacedOneByOneLoseNoCall) {
  std::array<Replica, 4> replicas;
  const auto target = [&](size_t i) { return replicas[i].server->target(); };
  Service service({target(0), target(1)});
  Links links({"service:1"}, 2, service.options());
  links.AwaitAll(seconds(10));
  const auto until = Clock::now() + seconds(60);
  // One leaves when its successor is among the name's servers, and goes when the successor has been
  // found.
  for (size_t old = 0; old < 2; ++old) {
    service.Become({target(old + 1), target(old + 2)});
    replicas[old].leaves = true;
    while (replicas[old + 2].calls == 0) {
      ASSERT_LT(Clock::now(), until);
      UnaryCall call = Ask("hello");
      links.Start(call);
      Await(links, 1);
      links.ended().clear();
      EXPECT_TRUE(call.status.ok()) << call.status.error_message();
      links.Wait(Clock::now() + milliseconds(1));
    }
    replicas[old].server = nullptr;
    for (int i = 0; i < 20; ++i) {
      links.Wait(Clock::now() + milliseconds(1));
      UnaryCall call = Ask("hello");
      links.Start(call);
      Await(links, 1);
      links.ended().clear();
      EXPECT_TRUE(call.status.ok()) << old << ": " << call.status.error_message();
    }
  }
}

TEST_F(LinksTest, OnlyCallsAtTheServerThatDiesAreLost) {
  std::array<Replica, 2> replicas;
  Service service({replicas[0].server->target(), replicas[1].server->target()});
  Links links({"service:1"}, 4, service.options());
  links.AwaitAll(seconds(10));
  const std::string target = replicas[0].server->target();
  replicas[0].server = nullptr;
  links.Wait(Clock::now() + milliseconds(5));  // the ends of its connections arrive
  std::vector<UnaryCall> calls(40, Ask("hello"));
  for (UnaryCall& call : calls) links.Start(call);
  Await(links, calls.size());
  int lost = 0;
  for (const UnaryCall& call : calls) lost += call.status.ok() ? 0 : 1;
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(replicas[1].calls, 40);
  links.ended().clear();

  // Where it was, another begins: it gets its share.
  std::atomic<int> again = 0;
  const LocalServer successor(
      [&again](ServerConnection& connection, int32_t stream, std::string_view path,
               std::string_view body) {
        ++again;
        LocalServer::Echo(connection, stream, path, body);
      },
      {}, target);
  const auto until = Clock::now() + seconds(30);
  while (again == 0) {
    ASSERT_LT(Clock::now(), until);
    links.Wait(Clock::now() + milliseconds(1));
    UnaryCall call = Ask("hello");
    links.Start(call);
    Await(links, 1);
    links.ended().clear();
    EXPECT_TRUE(call.status.ok()) << call.status.error_message();
  }
}

// Greets as HTTP/2 has it, and then sends what it was told to, to all who come.
class RawServer {
 public:
  explicit RawServer(std::function<std::string()> more)
      : target_("unix-abstract:castor-links-raw-" + std::to_string(getpid())),
        more_(std::move(more)) {
    const Address address = Resolve(target_).front();
    listener_ = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address.bytes), address.size), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~RawServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  const std::string& target() const { return target_; }
  int visits() const { return visits_; }

 private:
  void Serve() {
    std::vector<int> open;
    while (true) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) break;
      ++visits_;
      const std::string bytes = std::string("\0\0\0\4\0\0\0\0\0", 9) + more_();
      (void)!send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      open.push_back(client);
      if (open.size() > 8) {
        close(open.front());
        open.erase(open.begin());
      }
    }
    for (const int client : open) close(client);
  }

  const std::string target_;
  const std::function<std::string()> more_;
  int listener_ = -1;
  std::atomic<int> visits_ = 0;
  std::thread thread_;
};

TEST_F(LinksTest, NoBytesOfAServerDoMoreThanEndCalls) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  // Frames of all types with random flags, lengths and streams, or noise.
  const RawServer server([&random] {
    std::string bytes;
    for (uint64_t frames = random() % 20; frames > 0; --frames) {
      const uint64_t length = random() % 40;
      bytes += std::string("\0\0", 2) + static_cast<char>(length);
      bytes += static_cast<char>(random() % 11);
      bytes += static_cast<char>(random() % 4 == 0 ? random() : 5);
      bytes += std::string("\0\0\0", 3) + static_cast<char>(random() % 12);
      for (uint64_t i = 0; i < length; ++i) bytes += static_cast<char>(random());
    }
    return bytes;
  });
  for (int round = 0; round < 100; ++round) {
    std::vector<UnaryCall> calls(8, Ask("hello"));
    Links links({server.target()}, 4);
    for (UnaryCall& call : calls) links.Start(call);
    for (int i = 0; i < 4; ++i) {
      links.Flush();
      links.Wait(Clock::now() + milliseconds(1));
    }
    for (UnaryCall& call : calls) {
      EXPECT_TRUE(call.done == Clock::time_point() || !call.status.ok());
      if (call.done == Clock::time_point()) {
        links.Cancel(call, grpc::Status(grpc::StatusCode::CANCELLED, ""));
      }
    }
  }
}

TEST_F(LinksTest, AServerThatSendsEveryoneAwayIsNotAskedForEver) {
  const RawServer server(
      [] { return std::string("\0\0\x08\7\0\0\0\0\0", 9) + std::string(8, '\0'); });
  Links links({server.target()}, 1);
  const auto begin = Clock::now();
  while (Clock::now() - begin < milliseconds(300) || server.visits() < 2) {
    ASSERT_LT(Clock::now() - begin, seconds(30));
    links.Flush();
    links.Wait(Clock::now() + milliseconds(50));
  }
  // After 20, 40, 80, 160, ... ms, and at last every second.
  EXPECT_LE(server.visits(), 6 + (Clock::now() - begin) / milliseconds(300));
}

TEST_F(LinksTest, WakeEndsAWait) {
  const LocalServer server(LocalServer::Echo);
  Links links({server.target()}, 1);
  links.AwaitAll(seconds(10));
  std::thread other([&links] { links.Wake(); });
  links.Wait(std::nullopt);
  other.join();
}

}  // namespace
}  // namespace castor::load
