#include "client/load/output/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "client/load/output/text.h"

namespace castor::load {
namespace {

constexpr size_t kMemory = 60;       // seconds
constexpr double kPlainSeconds = 5;  // between lines
constexpr size_t kMaxNameCells = 28;

using cli::Bar;
using cli::Ink;
using cli::ScreenLine;
using cli::Sparkline;

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
  std::vector<std::optional<double>> values(memory.p99.begin(), memory.p99.end());
  values.emplace_back(static_cast<double>(p99));
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

LiveView::LiveView(int descriptor)
    : descriptor_(descriptor),
      block_(cli::IsScreen(descriptor)),
      screen_(cli::ScreenOf(descriptor)) {}

LiveView::LiveView(int descriptor, const Screen& screen)
    : descriptor_(descriptor), block_(true), fixed_(true), screen_(screen) {}

Screen LiveView::Measured() const {
  if (fixed_) return screen_;
  Screen screen = cli::ScreenOf(descriptor_);
  screen.color = screen_.color;
  screen.unicode = screen_.unicode;
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
