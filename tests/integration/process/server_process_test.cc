// castor-server as its operators see it: one line when it listens, signals, exit codes, and attacks
// whose damage would show in the process's memory and descriptors.

#include "tests/integration/process/server_process.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_authority.h"
#include "tests/support/tls_client.h"

namespace castor::testing {
namespace {

using Arguments = std::vector<std::string>;

// A server on ports chosen by the system, and a channel to it.
class RunningServer {
 public:
  explicit RunningServer(const Arguments& more = {}) : process(WithDefaults(more)) {
    const std::string line = process.AwaitLine("listening");
    const size_t at = line.find("grpc=127.0.0.1:");
    if (at != std::string::npos) port = std::stoi(line.substr(at + 15));
    channel = NewChannel();
    attention = v1::AttentionService::NewStub(channel);
  }

  // A channel with its own connection.
  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                     grpc::InsecureChannelCredentials(), arguments);
  }

  grpc::Status Attend(int64_t tokens = 3) {
    AttendCall call;
    return call.Run(*attention, AttendOf(tokens));
  }

  // Attend with any bytes for a request.
  grpc::Status AttendBytes(const grpc::ByteBuffer& message,
                           grpc_compression_algorithm algorithm = GRPC_COMPRESS_NONE) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/castor.v1.AttentionService/Attend", grpc::StubOptions(), &message,
                   &response, [&](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }

  ServerProcess process;
  int port = 0;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::AttentionService::Stub> attention;

 private:
  static Arguments WithDefaults(const Arguments& more) {
    Arguments all = {"--listen", "127.0.0.1:0",         "--device", "cpu", "--cpu-threads",
                     "1",        "--cost-model-budget", "0s"};
    if (std::find(more.begin(), more.end(), "--metrics-listen") == more.end()) {
      all.insert(all.end(), {"--metrics-listen", "off"});
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

int64_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

// In a process of its own, since OpenSSL is told for all of a process.
TEST(ServerProcessTest, TheOldestVersionOfTlsIsKept) {
  const TestAuthority authority;
  const KeyPair pair = authority.IssueForLocalhost();
  const TemporaryFolder folder;
  std::ofstream(folder / "pair.pem") << pair.certificate << pair.key;
  RunningServer server({"--tls-certificate", folder / "pair.pem", "--tls-key", folder / "pair.pem",
                        "--tls-min-version", "1.3"});
  ASSERT_GT(server.port, 0) << server.process.output();
  TlsClient::Options options{.authority = authority.certificate()};
  TlsClient modern(server.port, options);
  EXPECT_EQ(modern.Enter(), "");
  EXPECT_EQ(modern.version(), "TLSv1.3");
  options.newest = TLS1_2_VERSION;
  TlsClient old(server.port, options);
  EXPECT_EQ(old.Enter(), "closed");  // gRPC sends no alert
}

TEST(ServerProcessTest, SaysWhereItsHealthPortIs) {
  RunningServer server({"--health-listen", "127.0.0.1:0"});
  ASSERT_GT(server.port, 0) << server.process.output();
  const std::string& output = server.process.output();
  const size_t at = output.find("health=127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << output;
  EXPECT_TRUE(RawClient(std::stoi(output.substr(at + 17))).connected());
  server.process.Signal(SIGTERM);
  EXPECT_EQ(server.process.Wait(), 0) << server.process.output();
}

// With nothing in flight, stopping takes little more than the 250 ms in which new calls are
// refused. A busy machine may take longer, but hardly five times in a row.
TEST(ServerProcessTest, EndsInWellUnderASecondWhenIdle) {
  using std::chrono::milliseconds;
  milliseconds shortest = milliseconds::max();
  for (int i = 0; i < 5 && shortest >= Patience(milliseconds(1000)); ++i) {
    RunningServer server({"--metrics-listen", "127.0.0.1:0"});
    const std::string& output = server.process.output();
    const size_t at = output.find("metrics=127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << output;
    // Visit the metrics port once, so that its acceptor waits for the next connection.
    ASSERT_TRUE(RawClient(std::stoi(output.substr(at + 18))).connected());
    const auto before = std::chrono::steady_clock::now();
    server.process.Signal(SIGTERM);
    EXPECT_EQ(server.process.Wait(), 0) << server.process.output();
    shortest = std::min(shortest, std::chrono::duration_cast<milliseconds>(
                                      std::chrono::steady_clock::now() - before));
  }
  EXPECT_LT(shortest, Patience(milliseconds(1000)));
}

TEST(ServerProcessTest, JsonLogCarriesTheAddresses) {
  ServerProcess process({"--listen", "127.0.0.1:0", "--metrics-listen", "off", "--device", "cpu",
                         "--log-format", "json"});
  const std::string line = process.AwaitLine("\"listening\"");
  EXPECT_NE(line.find("\"grpc\":\"127.0.0.1:"), std::string::npos) << process.output();
  EXPECT_NE(line.find("\"metrics\":\"off\""), std::string::npos);
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 0);
}

// Each caller, on its own connection, sends its next call as soon as it has an answer, until it is
// told that the server stops. None may get any other error, however late its last call comes.
TEST(ServerProcessTest, SigtermUnderLoadTellsEveryCallerThatTheServerStops) {
  constexpr int kCallers = 16;
  RunningServer server;
  ASSERT_GT(server.port, 0) << server.process.output();
  std::atomic<int> answered = 0;
  std::atomic<int> told = 0;
  std::atomic<int> failed = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      const auto stub = v1::AttentionService::NewStub(server.NewChannel());
      const v1::AttendRequest request = AttendOf(64);
      for (;;) {
        AttendCall call;
        const grpc::Status status = call.Run(*stub, request);
        if (status.ok()) {
          ++answered;
          continue;
        }
        const bool draining = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                              DetailsOf(status).info.reason() == "DRAINING";
        ++(draining ? told : failed);
        if (!draining) ADD_FAILURE() << status.error_code() << " " << status.error_message();
        return;
      }
    });
  }
  while (answered < 100 && failed == 0) std::this_thread::yield();
  server.process.Signal(SIGTERM);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(told, kCallers);
  EXPECT_EQ(server.process.Wait(), 0) << server.process.output();
}

// Calls go on through it, and it is no signal to stop.
TEST(ServerProcessTest, HangUpReadsFilesAgainAndEndsNothing) {
  RunningServer server({"--drain-delay", "1s"});
  ASSERT_GT(server.port, 0) << server.process.output();
  for (int i = 0; i < 3; ++i) {
    server.process.Signal(SIGHUP);
    EXPECT_NE(server.process.AwaitLine("files are checked"), "");
    EXPECT_TRUE(server.Attend().ok());
  }
  server.process.Signal(SIGTERM);
  ASSERT_NE(server.process.AwaitLine("draining"), "");
  server.process.Signal(SIGHUP);
  EXPECT_NE(server.process.AwaitLine("files are checked"), "");
  EXPECT_TRUE(server.Attend().ok());
  EXPECT_EQ(server.process.Wait(), 0) << server.process.output();
}

// Each of them would by default. What stops a process, dumps its core on demand or reports its own
// fault is not among them.
TEST(ServerProcessTest, OtherSignalsEndNothing) {
  RunningServer server;
  ASSERT_GT(server.port, 0) << server.process.output();
  for (const int number : {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT,
                           SIGXCPU, SIGRTMIN, SIGRTMIN + 7, SIGRTMAX}) {
    server.process.Signal(number);
    EXPECT_NE(server.process.AwaitLine("signal=" + std::to_string(number)), "") << number;
  }
  for (const int number : {SIGPIPE, SIGXFSZ}) server.process.Signal(number);
  EXPECT_TRUE(server.Attend().ok());
  server.process.Signal(SIGTERM);
  EXPECT_EQ(server.process.Wait(), 0) << server.process.output();
}

// One line, where other machines can reach a port that asks nobody and encrypts nothing.
TEST(ServerProcessTest, WarnsOfAnOpenDoor) {
  const auto warnings = [](const std::string& address) {
    ServerProcess process({"--listen", address, "--metrics-listen", "off", "--device", "cpu",
                           "--cost-model-budget", "0s"});
    EXPECT_NE(process.AwaitLine(" listening "), "") << process.output();
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0) << process.output();
    const std::string& output = process.output();
    const size_t at = output.find("everyone who can reach this address");
    if (at == std::string::npos) return 0;
    EXPECT_NE(output.find("--tls-certificate", at), std::string::npos);
    EXPECT_NE(output.find("--auth-tokens", at), std::string::npos);
    return output.find("everyone who can reach", at + 1) == std::string::npos ? 1 : 2;
  };
  EXPECT_EQ(warnings("0.0.0.0:0"), 1);
  for (const char* const local : {"127.0.0.1:0", "localhost:0"}) {
    EXPECT_EQ(warnings(local), 0) << local;
  }
}

// A file of /proc; "" where there is none.
std::string ReadProc(pid_t process, const std::string& file) {
  std::ifstream in("/proc/" + std::to_string(process) + "/" + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool Blocks(pid_t process, int signal) {
  const std::string status = ReadProc(process, "status");
  const size_t at = status.find("SigBlk:");
  return at != std::string::npos &&
         (std::stoull(status.substr(at + 7), nullptr, 16) >> (signal - 1) & 1) != 0;
}

// As a container's first process, for which the kernel drops signals that nobody waits for: it is
// all ears before its libraries initialise themselves. SIGHUP is blocked with SIGTERM, which
// unshare(1) blocks for a moment, too.
TEST(ServerProcessTest, AFirstProcessHearsSigtermFromTheBeginning) {
  const Arguments under = {"unshare", "--user", "--map-root-user",
                           "--pid",   "--fork", "--mount-proc"};
  if (std::system("unshare --user --map-root-user --pid --fork --mount-proc true") != 0) {
    GTEST_SKIP() << "no namespaces here";
  }
  ServerProcess process({"--listen", "127.0.0.1:0", "--metrics-listen", "off", "--device", "cpu"},
                        under);
  pid_t first = 0;
  const auto deadline = std::chrono::steady_clock::now() + Patience(std::chrono::seconds(60));
  while (first == 0 || !Blocks(first, SIGHUP)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << process.output();
    const std::string children =
        ReadProc(process.pid(), "task/" + std::to_string(process.pid()) + "/children");
    if (!children.empty()) first = std::stoi(children);
  }
  ASSERT_EQ(kill(first, SIGTERM), 0);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM) << process.output();
}

TEST(ServerProcessTest, SecondSignalEndsAtOnce) {
  for (const int second : {SIGTERM, SIGINT}) {
    RunningServer server({"--drain-delay", "1h"});
    ASSERT_GT(server.port, 0) << server.process.output();
    server.process.Signal(SIGTERM);
    ASSERT_NE(server.process.AwaitLine("draining"), "");
    server.process.Signal(second);
    EXPECT_EQ(server.process.Wait(), 128 + second);
  }
}

TEST(ServerProcessTest, PortTakenIsOneLineAndExitCodeOne) {
  RunningServer first;
  ASSERT_GT(first.port, 0) << first.process.output();
  const std::string address = "127.0.0.1:" + std::to_string(first.port);
  ServerProcess second({"--listen", address, "--metrics-listen", "off", "--device", "cpu"});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_EQ(Lines(second.output()), 1) << second.output();
  EXPECT_NE(second.output().find(address), std::string::npos) << second.output();
}

TEST(ServerProcessTest, BadFlagsAreOneLineAndExitCodeTwo) {
  for (const Arguments& arguments : std::vector<Arguments>{{"--no-such-flag"},
                                                           {"--listen", "nowhere"},
                                                           {"--max-message-bytes", "-1"},
                                                           {"--model", "/no/such/folder"},
                                                           {"--device", "abacus"}}) {
    ServerProcess process(arguments);
    EXPECT_EQ(process.Wait(), 2) << arguments[0];
    EXPECT_EQ(Lines(process.output()), 1) << process.output();
  }
}

TEST(ServerProcessTest, BadModelIsOneLineAndExitCodeOne) {
  ServerProcess process({"--listen", "127.0.0.1:0", "--metrics-listen", "off", "--device", "cpu",
                         "--model", "broken=" + std::string(CASTOR_TEST_FOLDER)});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_EQ(Lines(process.output()), 1) << process.output();
  EXPECT_NE(process.output().find("config.json"), std::string::npos) << process.output();
}

// 256 MiB of zeros that arrive as 256 KiB. If the server inflated them before checking their size,
// its peak memory would show it.
TEST(ServerProcessTest, GzipBombIsNotInflated) {
  RunningServer server({"--max-message-bytes", "1MiB"});
  ASSERT_GT(server.port, 0) << server.process.output();
  ASSERT_TRUE(server.Attend().ok());
  const int64_t before = server.process.PeakResidentBytes();
  const grpc::Slice zeros(std::string(1 << 20, '\0'));
  const std::vector<grpc::Slice> slices(256, zeros);
  const grpc::ByteBuffer bomb(slices.data(), slices.size());
  EXPECT_EQ(server.AttendBytes(bomb, GRPC_COMPRESS_GZIP).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  ExpectGrowthBelow(32 << 20, before, server.process.PeakResidentBytes());
  EXPECT_TRUE(server.Attend().ok());
}

// By default all of it would be kept.
TEST(ServerProcessTest, GivesBackFreedMemoryBeyondWhatItMayKeep) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator keeps freed memory its own way";
  RunningServer server({"--max-message-bytes", "128MiB", "--max-kept-bytes", "1MiB"});
  ASSERT_TRUE(server.Attend().ok()) << server.process.output();
  const int64_t before = server.process.ResidentBytes();
  const std::vector<grpc::Slice> slices(96, grpc::Slice(std::string(1 << 20, '\0')));
  const grpc::ByteBuffer message(slices.data(), slices.size());
  EXPECT_EQ(server.AttendBytes(message).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_GT(server.process.PeakResidentBytes(), before + (64 << 20));
  const auto deadline = std::chrono::steady_clock::now() + Patience(std::chrono::seconds(60));
  while (server.process.ResidentBytes() > before + (32 << 20)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
}

// Opens `count` connections, holds them until the server has accepted them all, and drops them:
// plainly, after the preface, or by a reset. The system accepts in the order of arrival, so the
// last connection's greeting proves that all were accepted. Without that wait the listen queue
// would overflow, and connections dropped there are retried up to a minute later.
void HoldAndDrop(int port, int count) {
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<RawClient>(port));
    ASSERT_TRUE(clients.back()->connected());
    if (i % 3 == 1) clients.back()->SendPreface();
  }
  ASSERT_TRUE(clients.back()->AwaitGreeting());
  for (int i = 2; i < count; i += 3) clients[i]->Vanish();
}

// Waits until the process has at most `most` descriptors; it closes connections when it gets to
// them.
bool AwaitDescriptors(const ServerProcess& process, int most) {
  const auto deadline = std::chrono::steady_clock::now() + Patience(std::chrono::seconds(60));
  while (process.OpenDescriptors() > most) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// The first round shows what the process keeps anyway: it holds on to freed memory for later
// connections. Both rounds have the same number of connections open at once, so growth in the
// second is a leak.
TEST(ServerProcessTest, TenThousandDroppedConnectionsLeaveNothingBehind) {
  constexpr int kWave = 500;
  RunningServer server;
  ASSERT_GT(server.port, 0) << server.process.output();
  ASSERT_TRUE(server.Attend().ok());
  const int descriptors = server.process.OpenDescriptors() + 10;
  std::array<int64_t, 2> peak_bytes{};
  for (int64_t& peak : peak_bytes) {
    for (int wave = 0; wave < Scaled(10'000 / kWave); ++wave) {
      HoldAndDrop(server.port, kWave);
      ASSERT_TRUE(AwaitDescriptors(server.process, descriptors));
    }
    peak = server.process.PeakResidentBytes();
    EXPECT_TRUE(server.Attend().ok());
  }
  ExpectGrowthBelow(32 << 20, peak_bytes[0], peak_bytes[1]);
}

}  // namespace
}  // namespace castor::testing
