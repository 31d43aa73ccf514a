#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "client/cli/report.h"
#include "client/load/report/markup.h"
#include "client/load/report/report.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {
namespace {

constexpr double kWidth = 920, kLeft = 70, kRight = 90, kTop = 12, kBottom = 22;
constexpr double kHeight = 220;
constexpr size_t kMostPoints = 360;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Line {
  std::string name;
  std::string classes;         // of its path
  std::vector<double> values;  // NaN: a gap
};

std::string Position(double value) { return cli::FormatReal(value, "%.1f"); }

// From a value to its place between two positions.
struct Scale {
  double low, high, from, to;
  bool log = false;

  double At(double value) const {
    const double inside = std::clamp(value, low, high);
    const double share =
        log ? std::log(inside / low) / std::log(high / low) : (inside - low) / (high - low);
    return from + share * (to - from);
  }
};

// Powers of ten, and 2 and 5 times them where there are few; or 4 to 8 round steps.
std::vector<double> TicksOf(const Scale& scale) {
  std::vector<double> ticks;
  if (scale.log) {
    const bool fine = scale.high / scale.low < 300;
    for (double power = std::pow(10, std::floor(std::log10(scale.low))); power <= scale.high;
         power *= 10) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double tick = digit * power;
        if ((digit == 1 || fine) && tick >= scale.low && tick <= scale.high) ticks.push_back(tick);
      }
    }
    return ticks;
  }
  const double power = std::pow(10, std::floor(std::log10(scale.high - scale.low)));
  const double parts = (scale.high - scale.low) / power;  // 1 to 10
  const double step = power * (parts > 5 ? 2 : parts > 2 ? 1 : 0.5);
  for (double tick = std::ceil(scale.low / step) * step; tick <= scale.high; tick += step) {
    ticks.push_back(tick);
  }
  return ticks;
}

using Text = std::function<std::string(double)>;

class Chart {
 public:
  Chart(const std::string& title, Scale x, Scale y) : x_(x), y_(y) {
    svg_.Open("svg", {{"class", "chart"},
                      {"viewBox", "0 0 " + Position(kWidth) + " " + Position(kHeight)},
                      {"role", "img"},
                      {"aria-label", title}});
  }

  void Axes(const std::vector<double>& x_ticks, const Text& x_text, const Text& y_text) {
    for (const double tick : TicksOf(y_)) {
      Path("grid",
           "M" + Position(kLeft) + " " + Position(y_.At(tick)) + "H" + Position(kWidth - kRight));
      Label(kLeft - 6, y_.At(tick) + 4, "end", y_text(tick));
    }
    for (const double tick : x_ticks) Label(x_.At(tick), kHeight - 4, "middle", x_text(tick));
    Path("axis", "M" + Position(kLeft) + " " + Position(kHeight - kBottom) + "H" +
                     Position(kWidth - kRight));
  }

  // The line through its points, and its name at the end.
  void Draw(const Line& line, const std::vector<double>& xs) {
    std::string path;
    bool down = false;
    double last = kNone;
    for (size_t i = 0; i < line.values.size(); ++i) {
      if (std::isnan(line.values[i])) {
        down = false;
        continue;
      }
      last = y_.At(line.values[i]);
      path += (down ? "L" : "M") + Position(x_.At(xs[i])) + " " + Position(last);
      if (!down) path += "h0";  // a single point is a dot: the line has round ends
      down = true;
    }
    if (path.empty()) return;
    Path("line " + line.classes, path);
    // Names that would overlap go below each other.
    double at = last + 4;
    while (std::any_of(labels_.begin(), labels_.end(),
                       [&](double other) { return std::abs(other - at) < 13; })) {
      at += 1;
    }
    labels_.push_back(at);
    Label(kWidth - kRight + 6, at, "start", line.name);
  }

  // A level, such as a goal.
  void Level(double value, const std::string& text) {
    Path("goal",
         "M" + Position(kLeft) + " " + Position(y_.At(value)) + "H" + Position(kWidth - kRight));
    Label(kLeft + 4, y_.At(value) - 4, "start", text);
  }

  std::string Take() { return svg_.Close().whole(); }

 private:
  void Path(const std::string& classes, const std::string& path) {
    svg_.Empty("path", {{"class", classes}, {"d", path}});
  }
  void Label(double x, double y, std::string_view anchor, const std::string& text) {
    svg_.Put("text", text, {{"x", Position(x)}, {"y", Position(y)}, {"text-anchor", anchor}});
  }

  const Scale x_, y_;
  Markup svg_;
  std::vector<double> labels_;
};

Scale YScale(double low, double high, bool log) {
  if (log) {
    low = std::max(low, 1.0);
    high = std::max(high, low * 2);
  } else {
    high = std::max(high, 1.0);
  }
  return {low, high, kHeight - kBottom, kTop, log};
}

std::string TimeTick(double ns) { return cli::TimeText(ns); }

// An hour of seconds becomes a few hundred points.
size_t StepOf(const RunData& run) {
  return std::max<size_t>(1, (run.seconds.size() + kMostPoints - 1) / kMostPoints);
}

std::vector<double> Middles(const RunData& run) {
  std::vector<double> middles;
  for (size_t i = 0; i < run.seconds.size(); i += StepOf(run)) {
    middles.push_back(static_cast<double>(i) + 0.5 * static_cast<double>(StepOf(run)));
  }
  return middles;
}

std::string Timed(const RunData& run, const std::string& title, const std::vector<Line>& lines,
                  bool log, const Text& text, const std::vector<LatencyGoal>& goals) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Line& line : lines) {
    for (const double value : line.values) {
      if (std::isnan(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (high <= 0) return "";
  for (const LatencyGoal& goal : goals) {
    high = std::max(high, 1.1 * static_cast<double>(goal.limit.count()));
  }
  const Scale x{0, static_cast<double>(std::max<size_t>(1, run.seconds.size())), kLeft,
                kWidth - kRight};
  Chart chart(title, x, YScale(log ? low * 0.8 : 0, high * 1.1, log));
  chart.Axes(
      TicksOf(x), [](double s) { return cli::FormatReal(s, "%g s"); }, text);
  for (const LatencyGoal& goal : goals) {
    const auto limit = static_cast<double>(goal.limit.count());
    chart.Level(limit, QuantileName(goal.quantile) + " within " + cli::TimeText(limit));
  }
  for (const Line& line : lines) chart.Draw(line, Middles(run));
  return chart.Take();
}

}  // namespace

std::string TimelineChart(const RunData& run, size_t cls) {
  std::vector<Line> lines = {{"max", "faint", {}}, {"p99", "strong", {}}, {"p50", "plain", {}}};
  for (size_t begin = 0; begin < run.seconds.size(); begin += StepOf(run)) {
    Histogram latency;
    const size_t end = std::min(run.seconds.size(), begin + StepOf(run));
    for (size_t i = begin; i < end; ++i) latency.Add(run.seconds[i][cls].intended);
    const auto value = [&](int64_t ns) {
      return latency.empty() ? kNone : static_cast<double>(std::max<int64_t>(ns, 1));
    };
    lines[0].values.push_back(value(latency.max()));
    lines[1].values.push_back(value(latency.ValueAt(0.99)));
    lines[2].values.push_back(value(latency.ValueAt(0.5)));
  }
  return Timed(run, "Latency of " + run.classes[cls] + " over time", lines, /*log=*/true, TimeTick,
               run.objectives[cls].latencies);
}

std::string RateChart(const RunData& run) {
  std::vector<Line> lines = {{"OK", "plain", {}}, {"not OK", "bad", {}}};
  for (size_t begin = 0; begin < run.seconds.size(); begin += StepOf(run)) {
    const size_t end = std::min(run.seconds.size(), begin + StepOf(run));
    double ok = 0, others = 0;
    for (size_t i = begin; i < end; ++i) {
      const Second second = run.OfSecond(i);
      for (size_t k = 0; k < second.outcomes.size(); ++k) {
        (k == 0 ? ok : others) += static_cast<double>(second.outcomes[k]);
      }
    }
    const auto count = static_cast<double>(end - begin);
    lines[0].values.push_back(ok / count);
    lines[1].values.push_back(others / count);
  }
  return Timed(run, "Answers a second", lines, /*log=*/false,
               [](double value) { return cli::FormatReal(value, "%g"); }, {});
}

std::string PercentileChart(const RunData& run) {
  const Cell total = run.Total();
  if (total.intended.empty()) return "";
  // The x axis is how many in how many are slower: p90, p99, p99.9 are as far apart.
  const double most = std::max(100.0, static_cast<double>(total.intended.count()));
  const Scale x{1, most, kLeft, kWidth - kRight, /*log=*/true};
  std::vector<double> xs;
  std::vector<Line> lines = {{"from intended", "strong", {}}, {"from sending", "faint", {}}};
  for (double one_in = 1.01; one_in <= most; one_in *= 1.03) {
    const double quantile = 1 - 1 / one_in;
    xs.push_back(one_in);
    lines[0].values.push_back(static_cast<double>(total.intended.ValueAt(quantile)));
    lines[1].values.push_back(static_cast<double>(total.service.ValueAt(quantile)));
  }
  Chart chart("Latency by percentile", x,
              YScale(0.8 * static_cast<double>(std::max<int64_t>(1, total.service.min())),
                     1.2 * static_cast<double>(total.intended.max()), true));
  std::vector<double> ticks = {2};
  for (double tick = 10; tick <= most; tick *= 10) ticks.push_back(tick);
  chart.Axes(
      ticks, [](double one_in) { return QuantileName(1 - 1 / one_in); }, TimeTick);
  for (const Line& line : lines) chart.Draw(line, xs);
  return chart.Take();
}

}  // namespace castor::load
