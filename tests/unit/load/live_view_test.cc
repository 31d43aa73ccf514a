#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/load/output/terminal.h"
#include "client/load/output/text.h"
#include "tests/support/seeded.h"

namespace castor::load {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::ResultOf;
using ::testing::SizeIs;
using ::testing::StartsWith;

Second SecondOf(int64_t ok, int64_t refused, int64_t failed, int64_t milliseconds) {
  Second second;
  second.outcomes[static_cast<int>(Outcome::kOk)] = ok;
  second.outcomes[static_cast<int>(Outcome::kRefused)] = refused;
  second.outcomes[static_cast<int>(Outcome::kFailed)] = failed;
  if (ok > 0) second.intended.Record(milliseconds * 1'000'000, ok);
  second.in_flight = 4;
  return second;
}

Progress SomeProgress(double elapsed = 42) {
  Progress progress;
  progress.phase = "running";
  progress.elapsed_seconds = elapsed;
  progress.total_seconds = 120;
  progress.classes = {"interactive", "documents"};
  progress.last = {SecondOf(480, 2, 0, 3), SecondOf(20, 0, 1, 41)};
  progress.all = {SecondOf(20'000, 12, 0, 3), SecondOf(800, 0, 3, 41)};
  progress.in_flight = 8;
  progress.cpu_share = 0.34;
  return progress;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(BlockLinesTest, ShowsRatesPercentilesAndWhatWentWrong) {
  ViewMemory memory;
  memory.Add(SomeProgress(41));
  const Screen plain{.columns = 90, .rows = 24, .color = false, .unicode = true};
  EXPECT_EQ(Joined(BlockLines(SomeProgress(), memory, plain)),
            "running  0:42 of 2:00  ████████░░░░░░░░░░░░░░  1:18 left\n"
            "              sent/s     ok/s      p50      p99  refused   errors\n"
            "interactive      482      480  3.00 ms  3.00 ms       12        0\n"
            "documents         21       20  41.0 ms  41.0 ms        0        3\n"
            "all              503      500  3.00 ms  41.0 ms       12        3\n"
            "in flight 8   client CPU 34.0%   p99 ██\n");
}

TEST(BlockLinesTest, SentCountsWhatIsStillInFlight) {
  ViewMemory memory;
  Progress before = SomeProgress();
  before.last[0].in_flight = 1;  // and 4 now
  memory.Add(before);
  const Screen plain{.columns = 90, .rows = 24, .color = false, .unicode = true};
  EXPECT_THAT(BlockLines(SomeProgress(), memory, plain)[2], StartsWith("interactive      485 "));
}

TEST(BlockLinesTest, OnlyColoursWhereItMay) {
  const Screen color{.columns = 90, .rows = 24, .color = true, .unicode = true};
  const std::vector<std::string> lines = BlockLines(SomeProgress(), {}, color);
  EXPECT_THAT(lines[0], HasSubstr("\x1b[1mrunning\x1b[0m"));
  EXPECT_THAT(lines[3], HasSubstr("\x1b[31m3\x1b[0m"));
  const Screen plain{.columns = 90, .rows = 24, .color = false, .unicode = false};
  EXPECT_THAT(BlockLines(SomeProgress(), {}, plain), Each(Not(HasSubstr("\x1b"))));
}

class RandomScreenTest : public Seeded, public ::testing::Test {};

TEST_F(RandomScreenTest, FitsAnyScreenWithAnyNames) {
  for (int round = 0; round < 500; ++round) {
    Progress progress = SomeProgress();
    progress.classes.clear();
    progress.last.clear();
    progress.all.clear();
    for (int i = UpTo(12); i > 0; --i) {
      std::string name;
      for (int k = UpTo(40); k > 0; --k) name += static_cast<char>(Uniform(1, 255));
      progress.classes.push_back(name);
      progress.last.push_back(SecondOf(Uniform(0, 100'000), 1, 1, Uniform(1, 100'000)));
      progress.all.push_back(progress.last.back());
    }
    const Screen screen{.columns = static_cast<size_t>(Uniform(1, 200)),
                        .rows = static_cast<size_t>(Uniform(1, 30)),
                        .color = false,
                        .unicode = Uniform(0, 1) == 0};
    const std::vector<std::string> lines = BlockLines(progress, {}, screen);
    EXPECT_THAT(lines, SizeIs(Le(std::max<size_t>(screen.rows - 1, 1))));
    EXPECT_THAT(lines, Each(ResultOf([](const std::string& line) { return CellsOf(line); },
                                     Le(screen.columns - 1))));
  }
}

TEST(BlockLinesTest, ClassesWithoutRoomAreCounted) {
  Progress progress = SomeProgress();
  for (int i = 0; i < 20; ++i) {
    progress.classes.push_back("more");
    progress.last.push_back(SecondOf(1, 0, 0, 1));
    progress.all.push_back(SecondOf(1, 0, 0, 1));
  }
  const Screen small{.columns = 80, .rows = 10, .color = false, .unicode = true};
  const std::vector<std::string> lines = BlockLines(progress, {}, small);
  EXPECT_EQ(lines.size(), 9u);
  EXPECT_THAT(Joined(lines), HasSubstr("and 18 more classes\nall "));
}

TEST(PlainLineTest, SaysAllInOneLine) {
  const Progress progress = SomeProgress();
  EXPECT_EQ(PlainLine(progress, progress.last[0], 1),
            "running 0:42 of 2:00: 480 ok/s, p50 3.00 ms, p99 3.00 ms, 8 in flight, 12 refused, "
            "3 errors, client CPU 34.0%");
}

// What a terminal shows of bytes: text, newlines, and the two sequences that the view uses. Lines
// longer than the screen wrap, and wrap anew when it is resized, as most terminals do.
class FakeTerminal {
 public:
  void Feed(const std::string& bytes, size_t columns) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\n') {
        ++line_;
        if (line_ == lines_.size()) lines_.emplace_back();
      } else if (bytes[i] == '\r') {
        ASSERT_EQ(lines_[line_], "") << "the view's cursor rests below its block";
      } else if (bytes[i] == '\x1b') {
        const size_t end = bytes.find_first_of("AJm", i);
        const std::string number = bytes.substr(i + 2, end - i - 2);
        if (bytes[end] == 'A') Up(std::stoul(number), columns);
        if (bytes[end] == 'J') lines_.resize(line_ + 1), lines_[line_].clear();
        i = end;
      } else {
        lines_[line_] += bytes[i];
      }
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  // Rows on the screen, of which a wrapped line has several.
  void Up(size_t rows, size_t columns) {
    while (rows > 0) {
      ASSERT_GT(line_, 0u) << "above the screen";
      --line_;
      const size_t height = std::max<size_t>(1, (CellsOf(lines_[line_]) + columns - 1) / columns);
      ASSERT_GE(rows, height) << "into the middle of a line";
      rows -= height;
    }
  }

  std::vector<std::string> lines_ = {"$ castor-load run", ""};
  size_t line_ = 1;
};

// A terminal of this process's own.
class Pty {
 public:
  Pty() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) {
      throw std::runtime_error("no pseudo-terminal");
    }
    slave_ = open(ptsname(master_), O_RDWR | O_NOCTTY);
  }
  ~Pty() {
    close(slave_);
    close(master_);
  }
  void Resize(unsigned short columns, unsigned short rows) {
    const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(master_, TIOCSWINSZ, &size);
  }
  int terminal() const { return slave_; }
  // What was written since, with newlines as they were written.
  std::string Read() {
    std::string text;
    char block[4096];
    for (ssize_t got; (got = read(master_, block, sizeof(block))) > 0;) {
      text.append(block, static_cast<size_t>(got));
    }
    for (size_t at; (at = text.find("\r\n")) != std::string::npos;) text.erase(at, 1);
    return text;
  }

 private:
  int master_, slave_ = -1;
};

class LiveViewTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    pty_.Resize(100, 30);
  }
  Pty pty_;
};

TEST_F(LiveViewTest, RedrawsOneBlockInPlaceAlsoAfterResizing) {
  FakeTerminal terminal;
  LiveView view(pty_.terminal());
  for (const unsigned short columns : {100, 100, 60, 30, 140, 20}) {
    pty_.Resize(columns, 30);
    view.Show(SomeProgress());
    ASSERT_NO_FATAL_FAILURE(terminal.Feed(pty_.Read(), columns));
    // The prompt, six lines, and the cursor's.
    ASSERT_EQ(terminal.lines().size(), 8u) << columns;
    EXPECT_EQ(terminal.lines()[0], "$ castor-load run");
    EXPECT_THAT(terminal.lines()[1], StartsWith("running"));
    EXPECT_THAT(terminal.lines()[6], StartsWith("in flight"));
    EXPECT_EQ(terminal.lines()[7], "");
  }
  view.Hide();
  ASSERT_NO_FATAL_FAILURE(terminal.Feed(pty_.Read(), 20));
  EXPECT_THAT(terminal.lines(), ::testing::ElementsAre("$ castor-load run", ""));
}

TEST_F(LiveViewTest, LeavesNoModeOfTheTerminalChanged) {
  LiveView view(pty_.terminal());
  view.Show(SomeProgress());
  view.Show(SomeProgress());
  const std::string bytes = pty_.Read();
  EXPECT_THAT(bytes, HasSubstr("\x1b[1m"));
  EXPECT_THAT(bytes, Not(HasSubstr("\x1b[?")));  // a mode, such as a hidden cursor
  // The last colour was reset.
  const size_t last = bytes.rfind('\x1b');
  EXPECT_EQ(bytes.substr(last, 4), "\x1b[0m");
}

TEST_F(LiveViewTest, HonoursNoColor) {
  setenv("NO_COLOR", "1", 1);
  LiveView view(pty_.terminal());
  view.Show(SomeProgress());
  unsetenv("NO_COLOR");
  EXPECT_THAT(pty_.Read(), Not(HasSubstr("\x1b")));
}

TEST_F(LiveViewTest, WritesPlainLinesToADumbTerminal) {
  setenv("TERM", "dumb", 1);
  LiveView view(pty_.terminal());
  for (int second = 1; second <= 12; ++second) view.Show(SomeProgress(second));
  const std::string text = pty_.Read();
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, StartsWith("running 0:05 of 2:00: 500 ok/s, "));
  EXPECT_THAT(text, HasSubstr("\nrunning 0:10 of 2:00: 500 ok/s, "));
}

TEST_F(LiveViewTest, WritesPlainLinesWhereThereIsNoTerminal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    LiveView view(ends[1]);
    for (int second = 1; second <= 5; ++second) view.Show(SomeProgress(second));
    view.Hide();
  }
  close(ends[1]);
  std::string text(1000, '\0');
  text.resize(static_cast<size_t>(read(ends[0], text.data(), text.size())));
  close(ends[0]);
  EXPECT_THAT(text, StartsWith("running 0:05 of 2:00: "));
  EXPECT_THAT(text, EndsWith("client CPU 34.0%\n"));
}

TEST_F(LiveViewTest, APhaseStartsItsLinesAnew) {
  setenv("TERM", "dumb", 1);
  LiveView view(pty_.terminal());
  Progress warm_up = SomeProgress();
  warm_up.phase = "warming up";
  for (int second = 1; second <= 4; ++second) {
    warm_up.elapsed_seconds = second;
    view.Show(warm_up);
  }
  EXPECT_EQ(pty_.Read(), "");
  for (int second = 1; second <= 5; ++second) view.Show(SomeProgress(second));
  EXPECT_THAT(pty_.Read(), StartsWith("running 0:05 of 2:00: 500 ok/s"));
}

}  // namespace
}  // namespace castor::load
