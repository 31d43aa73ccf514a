// castor top against real servers: as text, over TLS and with a token, and on a terminal.

#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/access/secure_fixture.h"
#include "tests/integration/client/program.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kNobody[] = "127.0.0.1:1";

class TopTest : public SecureServerTest {
 protected:
  std::string MetricsAddress() const {
    return "127.0.0.1:" + std::to_string(server_->metrics_port());
  }

  // Makes a row of attend.
  void CallOnce() {
    ASSERT_TRUE(Try(AttendOf(1)).ok());
    ASSERT_TRUE(AwaitNoCalls());
  }

  Ended Top(std::vector<std::string> flags,
            const std::vector<std::pair<std::string, std::string>>& variables = {}) const {
    flags.insert(flags.begin(), {"top", "--interval", "100ms"});
    return RunProgram(CASTOR_PROGRAM, flags, variables, folder_.path());
  }

  // The single line on standard error of a run that found no server.
  std::string ErrorOf(const std::vector<std::string>& flags,
                      const std::vector<std::pair<std::string, std::string>>& variables = {}) {
    const Ended ended = Top(flags, variables);
    EXPECT_EQ(ended.out, "");
    return OneError(ended, 1);
  }
};

TEST_F(TopTest, PrintsOneFrameAsText) {
  StartServer(TestOptionsWithMetrics());
  CallOnce();
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--once"}, {}}) {
    std::vector<std::string> all = {"--metrics", MetricsAddress()};
    all.insert(all.end(), flags.begin(), flags.end());
    const Ended ended = Top(all);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    EXPECT_THAT(ended.out, AllOf(StartsWith("castor top   1 of 1 ready"),
                                 HasSubstr("\n" + MetricsAddress()), HasSubstr("\nattend vanilla "),
                                 HasSubstr("\nmemory "), Not(HasSubstr("\x1b"))));
  }
}

TEST_F(TopTest, ShowsWhatHappensInAnInterval) {
  StartServer(TestOptionsWithMetrics());
  CallOnce();
  engine_->RefuseWith(QueueFull("full", milliseconds(1)));
  std::atomic<bool> stop = false;
  std::thread caller([&] {
    while (!stop) {
      EXPECT_FALSE(Try(AttendOf(1)).ok());
    }
  });
  const Ended ended = Top({"--metrics", MetricsAddress()});
  stop = true;
  caller.join();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, ::testing::ContainsRegex("errors   RESOURCE_EXHAUSTED [1-9][0-9.,]*/s"));
}

TEST_F(TopTest, NoServerIsAnError) {
  EXPECT_THAT(ErrorOf({"--once", "--metrics", kNobody}),
              AllOf(HasSubstr(kNobody), HasSubstr("is castor-server running there?")));
  EXPECT_THAT(ErrorOf({"--once", "--metrics", "castor.invalid"}), HasSubstr("castor.invalid"));
  EXPECT_EQ(Top({"--metrics", "a/b"}).exit_code, 2);
  EXPECT_EQ(Top({"--interval", "0s"}).exit_code, 2);
  EXPECT_EQ(Top({"--interval", "nans"}).exit_code, 2);
  EXPECT_EQ(Top({"--tls", "--ca", folder_ / "missing"}).exit_code, 2);
  EXPECT_EQ(Top({"--token-file", folder_ / "missing"}).exit_code, 2);
}

TEST_F(TopTest, ReadsOverTlsWithAToken) {
  server::ServerOptions options = WithCallers(
      CallerEntry("prometheus", "right", "allow = [\"metrics\"]") + CallerEntry("mole", "lesser"),
      WithTls());
  options.access.metrics_tls = true;
  options.access.metrics_callers = true;
  StartSecure(std::move(options));
  const std::string ca = WriteText(folder_ / "ca.pem", authority_.certificate());
  const std::string other = WriteText(folder_ / "other.pem", other_.certificate());
  const std::vector<std::string> flags = {"--once", "--metrics", MetricsAddress(), "--ca", ca};
  const Ended ended = Top(flags, {{"CASTOR_TOKEN", "right"}});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("ready"));
  const std::string token = WriteText(folder_ / "token", "right\n");
  const Ended by_file =
      Top({"--metrics", "https://localhost:" + MetricsAddress().substr(10), "--token-file", token},
          {{"SSL_CERT_FILE", ca}});
  EXPECT_EQ(by_file.exit_code, 0) << by_file.err;
  std::vector<std::string> named = flags;
  named.insert(named.end(), {"--server-name", "localhost"});
  EXPECT_EQ(Top(named, {{"CASTOR_TOKEN", "right"}}).exit_code, 0);
  named.back() = "elsewhere.example";
  EXPECT_THAT(ErrorOf(named), HasSubstr("--server-name"));

  EXPECT_THAT(ErrorOf(flags), HasSubstr("--token-file"));
  EXPECT_THAT(ErrorOf(flags, {{"CASTOR_TOKEN", "mistaken"}}),
              AllOf(HasSubstr("does not accept this token"), Not(HasSubstr("mistaken"))));
  EXPECT_THAT(ErrorOf(flags, {{"CASTOR_TOKEN", "lesser"}}), HasSubstr("\"metrics\""));
  EXPECT_THAT(ErrorOf({"--once", "--metrics", MetricsAddress(), "--ca", other}),
              HasSubstr("see --ca"));
  EXPECT_THAT(ErrorOf({"--once", "--metrics", MetricsAddress()}), HasSubstr("Try --tls"));
}

TEST_F(TopTest, OnATerminalFramesFollowUntilASignalEndsIt) {
  StartServer(TestOptionsWithMetrics());
  CallOnce();
  const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t process = forkpty(&terminal, nullptr, nullptr, &size);
  if (process == 0) {
    setenv("TERM", "xterm", 1);
    execl(CASTOR_PROGRAM, CASTOR_PROGRAM, "top", "--interval", "100ms", "--metrics",
          MetricsAddress().c_str(), nullptr);
    _exit(127);
  }
  std::string output;
  const auto count = [&] {
    size_t frames = 0;
    for (size_t at = 0; (at = output.find("\x1b[H", at)) != std::string::npos; ++at) ++frames;
    return frames;
  };
  char block[4096];
  for (ssize_t got = 1; count() < 4 && got > 0;) {
    got = read(terminal, block, sizeof(block));
    if (got > 0) output.append(block, static_cast<size_t>(got));
  }
  EXPECT_THAT(output, AllOf(HasSubstr("\x1b[32m1 of 1 ready"), HasSubstr("attend vanilla")));
  kill(process, SIGINT);
  int status = 0;
  waitpid(process, &status, 0);
  close(terminal);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace castor::testing
