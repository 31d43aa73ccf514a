// Latency by percentile.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "client/cli/report.h"
#include "client/load/output/chart.h"
#include "client/load/output/figures.h"
#include "client/load/output/html_charts.h"
#include "client/load/output/text.h"

namespace castor::load {
namespace {

constexpr double kTop = 14, kBottom = 338;
constexpr double kTicks[] = {1, 2, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7};  // 1 / (1 - quantile)

double Odds(double quantile) { return 1 / (1 - quantile); }

std::string OddsText(double odds) {
  return odds == 1 ? "0%" : cli::FormatReal(100 * (1 - 1 / odds), "%.7g%%");
}

std::vector<Point> PointsOf(const std::vector<PercentilePoint>& curve, const Scale& x,
                            const Scale& y) {
  std::vector<Point> points;
  for (const PercentilePoint& point : curve) {
    points.push_back({x.At(point.odds), y.At(static_cast<double>(point.value))});
  }
  return points;
}

struct Range {
  double low = 1e18, high = 0;
  int64_t count = 0;

  void Cover(const Histogram& histogram) {
    if (histogram.empty()) return;
    low = std::min(low, static_cast<double>(histogram.ValueAt(0.05)));
    high = std::max(high, static_cast<double>(histogram.max()));
    count = std::max(count, histogram.count());
  }
};

std::string PercentileChart(const RunData& run, const std::vector<Cell>& classes,
                            const Range& range, Size size) {
  size.right = 24;  // no names stand there
  Chart chart(size, kBottom + kAxisSpace, "percentiles", "Latency by percentile",
              "Latency of OK answers for each percentile, by class, from the intended time and "
              "from sending. The tables hold the same figures.");
  const Area area = chart.Between(kTop, kBottom);
  const double right = std::max(100.0, static_cast<double>(range.count));
  const Scale x = Scale::Log(1, right, area.left, area.right);
  const Scale y = Scale::Log(RoundDown(std::max(range.low, 1e3)),
                             RoundUp(std::max(range.high, 2e3)), area.bottom, area.top);
  chart.LeftAxis(area, y, y.Ticks(10), RoundTime);
  std::vector<double> ticks;
  std::copy_if(std::begin(kTicks), std::end(kTicks), std::back_inserter(ticks),
               [&](double tick) { return tick <= right * 1.001 && (chart.wide() || tick != 2); });
  chart.BottomAxis(area, x, ticks, OddsText);

  for (size_t i = 0; i < classes.size(); ++i) {
    const Cell& cell = classes[i];
    if (cell.intended.empty()) continue;
    const std::string series = SeriesClass(i);
    chart.OpenGroup("series c" + std::to_string(i));
    chart.Line(PointsOf(CurveOf(cell.service, size.points), x, y), series + " dashed");
    chart.Line(PointsOf(CurveOf(cell.intended, size.points), x, y), series + " strong");
    if (i < run.objectives.size()) {
      for (const LatencyGoal& goal : run.objectives[i].latencies) {
        const auto limit = static_cast<double>(goal.limit.count());
        const double odds = Odds(std::min(goal.quantile, 1 - 1e-9));
        if (limit > y.high() || limit < y.low() || odds > right) continue;
        chart.Ring(x.At(odds), y.At(limit), series, ClassName(run, i) + ": " + GoalSign(goal));
      }
    }
    chart.CloseGroup();
  }
  return chart.Take();
}

}  // namespace

std::vector<PercentilePoint> CurveOf(const Histogram& histogram, size_t most) {
  std::vector<PercentilePoint> points;
  if (histogram.empty()) return points;
  const double end = std::log(std::max(2.0, static_cast<double>(histogram.count())));
  for (size_t i = 0; i < most; ++i) {
    const double odds = std::exp(end * static_cast<double>(i) / static_cast<double>(most));
    points.push_back({odds, histogram.ValueAt(1 - 1 / odds)});
  }
  points.push_back({std::exp(end), histogram.max()});
  return points;
}

std::string LegendEntry(const std::string& classes, const std::string& name,
                        const std::string& toggles) {
  Markup entry;
  entry.Open("span", {{"class", "key"}, {"data-toggles", toggles}});
  entry.Open("svg", {{"viewBox", "0 0 26 10"}, {"class", "swatch"}, {"aria-hidden", "true"}});
  entry.Empty("path", {{"class", "line " + classes}, {"d", "M1 5L25 5"}}).Close();
  entry.Text(name).Close().NewLine();
  return entry.whole();
}

std::string PercentileFigure(const RunData& run) {
  const std::vector<Cell> classes = ByClass(run);
  Range range;
  for (const Cell& cell : classes) {
    range.Cover(cell.intended);
    range.Cover(cell.service);
  }
  if (range.count == 0) return "";
  Markup figure;
  figure.Open("figure", {{"id", "percentile-figure"}}).NewLine();
  figure.Open("p", {{"class", "legend"}});
  for (size_t i = 0; i < classes.size(); ++i) {
    figure.Add(LegendEntry(SeriesClass(i) + " strong", ClassName(run, i), "c" + std::to_string(i)));
  }
  figure.Add(LegendEntry("plain strong", "from the intended time"));
  figure.Add(LegendEntry("plain dashed", "from sending"));
  figure.Close().NewLine();
  for (const Size& size : kSizes) figure.Add(PercentileChart(run, classes, range, size));
  figure.Open("figcaption");
  figure.Text(
      "Latency of OK answers by percentile. The axis stretches towards 100%: each step is ten "
      "times "
      "rarer. A circle is an objective: the curve must pass below it. Where the dashed line lies "
      "below the solid one, requests were sent late, and counting from sending would hide it.");
  figure.Close().NewLine().Close().NewLine();
  return figure.whole();
}

}  // namespace castor::load
