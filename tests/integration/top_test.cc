// castor top against whole servers: as text, over TLS and with a token, and on a terminal.

#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/program.h"
#include "tests/integration/secure_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kScreen[] = "\x1b[?1049h", kBack[] = "\x1b[0m\x1b[?25h\x1b[?1049l";
constexpr char kNobody[] = "127.0.0.1:1";

class TopTest : public SecureServerTest {
 protected:
  std::string MetricsAddress() const {
    return "127.0.0.1:" + std::to_string(server_->metrics_port());
  }

  // So that there is a row of attend.
  void CallOnce() {
    AttendCall call;
    ASSERT_TRUE(call.Run(*attention_, AttendOf(1)).ok());
    ASSERT_TRUE(AwaitNoCalls());
  }

  Ended Top(std::vector<std::string> flags,
            const std::vector<std::pair<std::string, std::string>>& variables = {}) const {
    flags.insert(flags.begin(), {"top", "--interval", "100ms"});
    return RunProgram(CASTOR_PROGRAM, flags, variables, folder_.path());
  }

  // The one line on standard error of a run that nobody answered.
  std::string ErrorOf(const std::vector<std::string>& flags,
                      const std::vector<std::pair<std::string, std::string>>& variables = {}) {
    const Ended ended = Top(flags, variables);
    EXPECT_EQ(ended.exit_code, 1) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    return ended.err;
  }
};

TEST_F(TopTest, PrintsOneFrameAsText) {
  StartServer(TestOptionsWithMetrics());
  CallOnce();
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--once"}, {}, {"--plain", "--count", "1"}}) {
    std::vector<std::string> all = {"--metrics", MetricsAddress()};
    all.insert(all.end(), flags.begin(), flags.end());
    const Ended ended = Top(all);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    EXPECT_THAT(ended.out, StartsWith(MetricsAddress() + "   ready   up "));
    EXPECT_THAT(ended.out, AllOf(HasSubstr("\nattend vanilla "), HasSubstr("\nmemory "),
                                 Not(HasSubstr("\x1b")), Not(HasSubstr("q quit"))));
    EXPECT_EQ(ended.out.find(" ready "), ended.out.rfind(" ready ")) << "one frame";
  }
}

TEST_F(TopTest, ShowsWhatHappensInAnInterval) {
  StartServer(TestOptionsWithMetrics());
  CallOnce();
  engine_->RefuseWith(QueueFull("full", milliseconds(1)));
  std::atomic<bool> stop = false;
  std::thread caller([&] {
    while (!stop) {
      AttendCall call;
      EXPECT_FALSE(call.Run(*attention_, AttendOf(1)).ok());
    }
  });
  const Ended ended = Top({"--metrics", MetricsAddress(), "--count", "2"});
  stop = true;
  caller.join();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, ::testing::ContainsRegex("errors    RESOURCE_EXHAUSTED [1-9][0-9.,]*/s"));
  EXPECT_NE(ended.out.find(" ready "), ended.out.rfind(" ready ")) << "two frames";
}

TEST_F(TopTest, SeveralServersAreALineEach) {
  StartServer(TestOptionsWithMetrics());
  CallOnce();
  const Ended ended = Top({"--once", "--metrics", MetricsAddress(), "--metrics", kNobody});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(StartsWith("2 servers   1 ready"), HasSubstr("\nall "),
                               HasSubstr("\n" + std::string(kNobody) + "      unreachable 0 s")));
}

TEST_F(TopTest, NobodyThereIsAnError) {
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

TEST_F(TopTest, TlsWhereThereIsNoneIsExplained) {
  StartServer(TestOptionsWithMetrics());
  EXPECT_THAT(ErrorOf({"--once", "--tls", "--metrics", MetricsAddress()}),
              HasSubstr("leave out --tls"));
}

// The program on a terminal of its own, whose screen is what it wrote.
class OnTerminal {
 public:
  explicit OnTerminal(std::vector<std::string> arguments) {
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    arguments.insert(arguments.begin(), {CASTOR_PROGRAM, "top", "--interval", "100ms"});
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    int slave = -1;
    EXPECT_EQ(openpty(&master_, &slave, nullptr, nullptr, &size), 0);
    tcgetattr(slave, &modes_);
    process_ = fork();
    if (process_ == 0) {
      close(master_);
      login_tty(slave);
      execv(words[0], words.data());
      _exit(127);
    }
    close(slave);
  }
  ~OnTerminal() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    close(master_);
  }

  // Whether the text is drawn, from what was drawn since the last one that was awaited.
  bool Await(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + Patience(std::chrono::seconds(20));
    size_t found = std::string::npos;
    while ((found = output_.find(text, seen_)) == std::string::npos) {
      if (std::chrono::steady_clock::now() > deadline || !ReadSome()) return false;
    }
    seen_ = found + text.size();
    return true;
  }

  void Press(const std::string& keys) const { (void)!write(master_, keys.data(), keys.size()); }
  void Signal(int number) const { kill(process_, number); }
  void Resize(unsigned short columns, unsigned short rows) const {
    const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(master_, TIOCSWINSZ, &size);
  }

  // Waits until a signal has stopped it.
  bool AwaitStopped() const {
    int status = 0;
    return waitpid(process_, &status, WUNTRACED) == process_ && WIFSTOPPED(status);
  }

  // Its exit code, or 128 + n if signal n ended it.
  int Wait() {
    while (ReadSome()) {
    }
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // As they were at the start.
  bool ModesAreBack() const {
    termios now{};
    return tcgetattr(master_, &now) == 0 && now.c_lflag == modes_.c_lflag;
  }

  const std::string& output() const { return output_; }

 private:
  // Reads once, or waits a second. False when nobody has the terminal any more.
  bool ReadSome() {
    char block[4096];
    pollfd wait{.fd = master_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, 1000) == 0) return true;
    const ssize_t got = read(master_, block, sizeof(block));
    if (got > 0) output_.append(block, static_cast<size_t>(got));
    return got > 0;
  }

  int master_ = -1;
  pid_t process_ = -1;
  termios modes_{};
  std::string output_;
  size_t seen_ = 0;
};

class TopOnTerminalTest : public TopTest {
 protected:
  void SetUp() override {
    StartServer(TestOptionsWithMetrics());
    CallOnce();
  }
};

TEST_F(TopOnTerminalTest, DrawsFramesTakesKeysAndLeavesTheTerminalAsItWas) {
  OnTerminal top({"--metrics", MetricsAddress()});
  ASSERT_TRUE(top.Await(kScreen)) << top.output();
  EXPECT_TRUE(top.Await("\x1b[32mready\x1b[0m"));
  EXPECT_TRUE(top.Await("attend vanilla"));
  EXPECT_TRUE(top.Await("sort by name"));
  EXPECT_FALSE(top.ModesAreBack()) << "keys come one by one";
  top.Press("s");
  EXPECT_TRUE(top.Await("sort by requests"));
  top.Press("?");
  EXPECT_TRUE(top.Await("calls answered OK"));
  top.Press("?");
  EXPECT_TRUE(top.Await("sort by requests"));
  top.Press("p");
  EXPECT_TRUE(top.Await("paused"));
  EXPECT_TRUE(top.Await("p go on"));
  top.Press("p");
  EXPECT_TRUE(top.Await("p pause"));
  top.Press("\x1b[A\x1bOq");  // an arrow, and something that only looks like q
  top.Resize(120, 24);
  EXPECT_TRUE(top.Await("WAIT P95"));
  top.Press("q");
  EXPECT_EQ(top.Wait(), 0);
  EXPECT_THAT(top.output(), EndsWith(kBack));
  EXPECT_TRUE(top.ModesAreBack());
}

TEST_F(TopOnTerminalTest, EndsAfterSoManyFrames) {
  OnTerminal top({"--metrics", MetricsAddress(), "--count", "2"});
  EXPECT_EQ(top.Wait(), 0);
  EXPECT_THAT(top.output(), AllOf(HasSubstr(kScreen), EndsWith(kBack)));
}

TEST_F(TopOnTerminalTest, AServerThatIsGoneIsSaidSo) {
  OnTerminal top({"--metrics", MetricsAddress()});
  ASSERT_TRUE(top.Await("ready")) << top.output();
  StopServer();
  EXPECT_TRUE(top.Await("unreachable since 0 s"));
  EXPECT_TRUE(top.Await("unreachable since 1 s"));
  top.Press("q");
  EXPECT_EQ(top.Wait(), 0) << "it could be read once";
}

TEST_F(TopOnTerminalTest, SignalsAndCrashesGiveTheTerminalBack) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGSEGV, SIGABRT}) {
    OnTerminal top({"--metrics", MetricsAddress()});
    ASSERT_TRUE(top.Await("sort by name")) << top.output();
    top.Signal(number);
    const int ended = top.Wait();
    if (number == SIGINT) {
      EXPECT_EQ(ended, 0) << "Ctrl-C is how people leave";
    } else if (!kSanitized) {  // a sanitizer reports a crash, and exits
      EXPECT_EQ(ended, 128 + number);
    }
    EXPECT_THAT(top.output(), HasSubstr(kBack)) << number;
    EXPECT_TRUE(top.ModesAreBack()) << number;
  }
}

TEST_F(TopOnTerminalTest, StopsAndGoesOnAsTheShellWants) {
  OnTerminal top({"--metrics", MetricsAddress()});
  ASSERT_TRUE(top.Await("sort by name")) << top.output();
  top.Press("\x1a");
  EXPECT_TRUE(top.Await(kBack));
  ASSERT_TRUE(top.AwaitStopped());
  EXPECT_TRUE(top.ModesAreBack());
  top.Signal(SIGCONT);
  EXPECT_TRUE(top.Await(kScreen));
  EXPECT_TRUE(top.Await("sort by name"));
  top.Press("q");
  EXPECT_EQ(top.Wait(), 0);
  EXPECT_TRUE(top.ModesAreBack());
}

TEST_F(TopOnTerminalTest, PlainTextHasNoSequences) {
  OnTerminal top({"--metrics", MetricsAddress(), "--plain", "--count", "1"});
  EXPECT_EQ(top.Wait(), 0);
  EXPECT_THAT(top.output(), AllOf(HasSubstr("attend vanilla"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace castor::testing
