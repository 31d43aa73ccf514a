#include "client/load/output/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>

#include "client/load/output/text.h"

namespace castor::load {
namespace {

constexpr size_t kMemory = 60;       // seconds
constexpr double kPlainSeconds = 5;  // between lines
constexpr size_t kMaxNameCells = 28;

enum class Ink { kPlain, kBold, kDim, kRed, kYellow };

const char* SequenceOf(Ink ink) {
  switch (ink) {
    case Ink::kBold:
      return "\x1b[1m";
    case Ink::kDim:
      return "\x1b[2m";
    case Ink::kRed:
      return "\x1b[31m";
    case Ink::kYellow:
      return "\x1b[33m";
    case Ink::kPlain:
      break;
  }
  return "";
}

// A line that is cut where the screen ends, whatever it contains.
class ScreenLine {
 public:
  explicit ScreenLine(const Screen& screen)
      : room_(screen.columns > 0 ? screen.columns - 1 : 0), color_(screen.color) {}

  // `text` is the program's own or FitText's: it has no control characters.
  ScreenLine& Add(std::string_view text, Ink ink = Ink::kPlain) {
    const std::string fitted = FitText(text, room_);
    room_ -= std::min(room_, CellsOf(fitted));
    const bool colored = color_ && ink != Ink::kPlain;
    text_ += (colored ? SequenceOf(ink) : "") + fitted + (colored ? "\x1b[0m" : "");
    return *this;
  }

  // In a column of `width` cells, at its right end if `right`.
  ScreenLine& Column(const std::string& text, size_t width, bool right, Ink ink = Ink::kPlain) {
    const std::string fitted = FitText(text, width);
    const std::string pad(width - CellsOf(fitted), ' ');
    if (right) Add(pad);
    Add(fitted, ink);
    if (!right) Add(pad);
    return *this;
  }

  std::string Take() { return std::move(text_); }

 private:
  size_t room_;
  const bool color_;
  std::string text_;
};

int64_t EndedIn(const Second& second) {
  return std::accumulate(second.outcomes.begin(), second.outcomes.end(), int64_t{0});
}

int64_t CountOf(const Second& second, Outcome outcome) {
  return second.outcomes[static_cast<size_t>(outcome)];
}

int64_t ErrorsOf(const Second& second) {
  return CountOf(second, Outcome::kExpired) + CountOf(second, Outcome::kFailed) +
         CountOf(second, Outcome::kDropped);
}

void AddTo(const Second& from, Second* to) {
  for (size_t i = 0; i < from.outcomes.size(); ++i) to->outcomes[i] += from.outcomes[i];
  to->good += from.good;
  to->intended.Add(from.intended);
}

Second SumOf(const std::vector<Second>& seconds) {
  Second sum;
  for (const Second& second : seconds) AddTo(second, &sum);
  return sum;
}

std::string QuantileIn(const Second& second, double quantile) {
  if (second.intended.empty()) return "-";
  return TimeText(static_cast<double>(second.intended.ValueAt(quantile)));
}

// A bar of the phase's progress.
std::string Bar(double share, size_t cells, bool unicode) {
  const auto full = static_cast<size_t>(share * static_cast<double>(cells) + 0.5);
  std::string bar;
  for (size_t i = 0; i < cells; ++i) {
    bar += i < full ? (unicode ? "█" : "#") : (unicode ? "░" : ".");
  }
  return bar;
}

// The newest `cells` values, as heights of the greatest among them.
std::string Sparkline(const std::deque<int64_t>& values, size_t cells, bool unicode) {
  constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr const char* kLetters[] = {"_", ".", ".", "-", "-", "=", "=", "#"};
  const size_t first = values.size() > cells ? values.size() - cells : 0;
  const int64_t greatest =
      std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(first), values.end(), int64_t{1},
                      [](int64_t a, int64_t b) { return std::max(a, b); });
  std::string line;
  for (size_t i = first; i < values.size(); ++i) {
    const auto level =
        static_cast<size_t>(7.999 * static_cast<double>(values[i]) / static_cast<double>(greatest));
    line += unicode ? kBlocks[level] : kLetters[level];
  }
  return line;
}

std::string HeadLine(const Progress& progress, const Screen& screen) {
  ScreenLine line(screen);
  line.Add(progress.phase, Ink::kBold).Add("  " + ClockText(progress.elapsed_seconds));
  if (progress.total_seconds > 0) {
    const double share = std::clamp(progress.elapsed_seconds / progress.total_seconds, 0.0, 1.0);
    line.Add(" of " + ClockText(progress.total_seconds) + "  ");
    line.Add(Bar(share, std::clamp<size_t>(screen.columns / 4, 4, 40), screen.unicode));
    line.Add("  " + ClockText(progress.total_seconds - progress.elapsed_seconds) + " left",
             Ink::kDim);
  }
  return line.Take();
}

struct ClassRow {
  std::string name;
  int64_t sent = 0;
  const Second *last, *all;
};

std::string ClassLine(const ClassRow& row, size_t name_cells, const Screen& screen, Ink ink) {
  ScreenLine line(screen);
  const int64_t refused = CountOf(*row.all, Outcome::kRefused), errors = ErrorsOf(*row.all);
  return line.Column(row.name, name_cells, false, ink)
      .Column(CountText(row.sent), 9, true)
      .Column(CountText(CountOf(*row.last, Outcome::kOk)), 9, true)
      .Column(QuantileIn(*row.last, 0.5), 9, true)
      .Column(QuantileIn(*row.last, 0.99), 9, true)
      .Column(CountText(refused), 9, true, refused > 0 ? Ink::kYellow : Ink::kPlain)
      .Column(CountText(errors), 9, true, errors > 0 ? Ink::kRed : Ink::kPlain)
      .Take();
}

std::string HeadOfClasses(size_t name_cells, const Screen& screen) {
  ScreenLine line(screen);
  line.Column("", name_cells, false);
  for (const char* name : {"sent/s", "ok/s", "p50", "p99", "refused", "errors"}) {
    line.Column(name, 9, true, Ink::kDim);
  }
  return line.Take();
}

std::string FootLine(const Progress& progress, const ViewMemory& memory, int64_t p99,
                     const Screen& screen) {
  ScreenLine line(screen);
  line.Add("in flight ", Ink::kDim).Add(CountText(progress.in_flight));
  const bool busy = progress.cpu_share > 0.9;  // as the verdict's rule client-cpu
  line.Add("   client CPU ", Ink::kDim)
      .Add(PercentText(progress.cpu_share, 1), busy ? Ink::kRed : Ink::kPlain);
  std::deque<int64_t> values = memory.p99;
  values.push_back(p99);
  line.Add("   p99 ", Ink::kDim);
  const size_t used = 48;
  const size_t room = screen.columns > used + 5 ? screen.columns - used : 5;
  line.Add(Sparkline(values, std::min(room, kMemory), screen.unicode));
  return line.Take();
}

// Sent: what ended in the last second, and what more there is in flight.
std::vector<ClassRow> ClassRowsOf(const Progress& progress, const ViewMemory& memory) {
  static const Second none;
  std::vector<ClassRow> rows;
  for (size_t i = 0; i < progress.classes.size(); ++i) {
    ClassRow row{.name = progress.classes[i], .last = &none, .all = &none};
    if (i < progress.last.size()) row.last = &progress.last[i];
    if (i < progress.all.size()) row.all = &progress.all[i];
    const int64_t before = i < memory.in_flight.size() ? memory.in_flight[i] : 0;
    row.sent = std::max<int64_t>(0, EndedIn(*row.last) - CountOf(*row.last, Outcome::kDropped) +
                                        row.last->in_flight - before);
    rows.push_back(std::move(row));
  }
  return rows;
}

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower = value;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

bool EnvironmentHas(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

void ViewMemory::Add(const Progress& progress) {
  const Second last = SumOf(progress.last);
  p99.push_back(last.intended.ValueAt(0.99));
  if (p99.size() > kMemory) p99.pop_front();
  in_flight.clear();
  for (const Second& second : progress.last) in_flight.push_back(second.in_flight);
}

std::vector<std::string> BlockLines(const Progress& progress, const ViewMemory& memory,
                                    const Screen& screen) {
  const size_t room = screen.rows > 1 ? screen.rows - 1 : 1;
  std::vector<ClassRow> rows = ClassRowsOf(progress, memory);
  const Second last = SumOf(progress.last), all = SumOf(progress.all);
  size_t name_cells = 5;
  for (const ClassRow& row : rows) name_cells = std::max(name_cells, CellsOf(row.name));
  // The figures take 54 cells: where the screen is narrow, names give way first.
  const size_t spare = screen.columns > 56 ? screen.columns - 56 : 0;
  name_cells = std::min({name_cells, kMaxNameCells, std::max<size_t>(spare, 8)});

  std::vector<std::string> lines = {HeadLine(progress, screen), HeadOfClasses(name_cells, screen)};
  // Besides these two: the total, the foot, and a line for classes that have no room.
  const size_t most = room > 5 ? room - 5 : 0;
  const size_t shown = rows.size() <= most + 1 ? rows.size() : most;
  for (size_t i = 0; i < shown; ++i) {
    lines.push_back(ClassLine(rows[i], name_cells, screen, Ink::kPlain));
  }
  if (shown < rows.size()) {
    lines.push_back(
        ScreenLine(screen)
            .Add("and " + std::to_string(rows.size() - shown) + " more classes", Ink::kDim)
            .Take());
  }
  if (rows.size() > 1) {
    ClassRow total{.name = "all", .last = &last, .all = &all};
    for (const ClassRow& row : rows) total.sent += row.sent;
    lines.push_back(ClassLine(total, name_cells, screen, Ink::kBold));
  }
  lines.push_back(FootLine(progress, memory, last.intended.ValueAt(0.99), screen));
  if (lines.size() > room) lines.resize(room);
  return lines;
}

std::string PlainLine(const Progress& progress, const Second& recent, double seconds) {
  std::string line = FitText(progress.phase, 40) + " " + ClockText(progress.elapsed_seconds);
  if (progress.total_seconds > 0) line += " of " + ClockText(progress.total_seconds);
  const Second all = SumOf(progress.all);
  const auto ok = static_cast<double>(CountOf(recent, Outcome::kOk));
  line += ": " + RateText(seconds > 0 ? ok / seconds : 0) + " ok/s, p50 " +
          QuantileIn(recent, 0.5) + ", p99 " + QuantileIn(recent, 0.99) + ", " +
          CountText(progress.in_flight) + " in flight, " +
          CountText(CountOf(all, Outcome::kRefused)) + " refused, " + CountText(ErrorsOf(all)) +
          " errors, client CPU " + PercentText(progress.cpu_share, 1);
  return line;
}

LiveView::LiveView(int descriptor) : descriptor_(descriptor) {
  const char* const term = std::getenv("TERM");
  const bool dumb = term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
  block_ = isatty(descriptor) == 1 && !dumb;
  screen_.color = !EnvironmentHas("NO_COLOR");
  screen_.unicode = LocaleIsUtf8();
}

LiveView::LiveView(int descriptor, const Screen& screen)
    : descriptor_(descriptor), block_(true), fixed_(true), screen_(screen) {}

Screen LiveView::Measured() const {
  Screen screen = screen_;
  winsize size{};
  if (!fixed_ && ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.rows = size.ws_row;
  }
  return screen;
}

void LiveView::Show(const Progress& progress) {
  if (block_) {
    ShowBlock(progress);
  } else {
    ShowPlain(progress);
  }
}

void LiveView::ShowBlock(const Progress& progress) {
  const Screen screen = Measured();
  const std::vector<std::string> lines = BlockLines(progress, memory_, screen);
  // One write, so that nobody sees half a block.
  std::string text = EraseSequence(screen.columns);
  drawn_.clear();
  for (const std::string& line : lines) {
    text += line + "\n";
    // Without colours; what is left are cells.
    std::string visible;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\x1b') {
        i = line.find('m', i);
      } else {
        visible += line[i];
      }
    }
    drawn_.push_back(CellsOf(visible));
  }
  Write(text);
  memory_.Add(progress);
}

void LiveView::ShowPlain(const Progress& progress) {
  if (progress.phase != phase_) {
    phase_ = progress.phase;
    since_ = {};
    since_seconds_ = last_elapsed_ = 0;
  }
  AddTo(SumOf(progress.last), &since_);
  since_seconds_ += std::max(0.0, progress.elapsed_seconds - last_elapsed_);
  last_elapsed_ = progress.elapsed_seconds;
  if (since_seconds_ < kPlainSeconds - 0.5) return;
  Write(PlainLine(progress, since_, since_seconds_) + "\n");
  since_ = {};
  since_seconds_ = 0;
}

void LiveView::Hide() {
  if (!block_ || drawn_.empty()) return;
  Write(EraseSequence(Measured().columns));
  drawn_.clear();
}

std::string LiveView::EraseSequence(size_t columns) const {
  if (drawn_.empty()) return "";
  // A terminal that became narrower has wrapped the lines that were drawn.
  size_t rows = 0;
  for (const size_t width : drawn_) {
    rows += std::max<size_t>(1, (width + columns - 1) / std::max<size_t>(columns, 1));
  }
  return "\r\x1b[" + std::to_string(rows) + "A\x1b[J";
}

void LiveView::Write(const std::string& text) const {
  // Nothing can be done about a terminal that is gone, and the run goes on.
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t put = write(descriptor_, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    rest.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace castor::load
