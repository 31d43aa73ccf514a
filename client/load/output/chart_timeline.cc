// Latency, requests, work in flight and the client's lag over time.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/report.h"
#include "client/load/output/chart.h"
#include "client/load/output/figures.h"
#include "client/load/output/html_charts.h"
#include "client/load/output/text.h"

namespace castor::load {
namespace {

// Outcomes that are drawn as bars, from the bottom.
constexpr Outcome kBars[] = {Outcome::kRefused, Outcome::kExpired, Outcome::kFailed,
                             Outcome::kDropped};

std::string RoundNumber(double value) { return cli::FormatReal(value, "%.4g"); }

struct Axes {
  double seconds = 1;            // of the run
  double low = 1e3, high = 2e3;  // ns, of all classes
};

Axes AxesOf(const Timeline& timeline, const RunData& run) {
  Axes axes;
  axes.seconds = std::max<double>(1, static_cast<double>(run.seconds.size()));
  double low = 1e18, high = 0;
  for (const auto& moments : timeline.classes) {
    for (const Moment& moment : moments) {
      if (std::isnan(moment.p50)) continue;
      low = std::min(low, moment.p50);
      high = std::max(high, moment.max);
    }
  }
  if (high > 0) {
    axes.low = RoundDown(std::max(low, 1e3));
    axes.high = std::max(RoundUp(high), 2 * axes.low);
  }
  return axes;
}

Scale TimeScale(const Axes& axes, const Area& area) {
  return Scale::Linear(0, axes.seconds, area.left, area.right);
}

void TimeAxis(Chart* chart, const Area& area, const Scale& x, const Axes& axes) {
  const std::vector<double> ticks = TimeTicks(axes.seconds, chart->wide() ? 12 : 6);
  chart->BottomAxis(area, x, ticks, ClockText);
}

template <typename Value>
std::vector<Point> PointsOf(const std::vector<Moment>& moments, const Scale& x, const Scale& y,
                            const Value& value) {
  std::vector<Point> points;
  for (const Moment& moment : moments) {
    const double at = value(moment);
    points.push_back({x.At(moment.middle), std::isnan(at) ? at : y.At(at)});
  }
  return points;
}

// Names beside the ends of lines.
void EndLabels(Chart* chart, const Area& area,
               const std::vector<std::pair<std::string, std::vector<Point>>>& lines,
               std::string_view classes) {
  if (!chart->wide()) return;
  std::vector<double> heights;
  for (const auto& [name, points] : lines) {
    double last = area.bottom;
    for (const Point& point : points) last = std::isnan(point.y) ? last : point.y;
    heights.push_back(last + 4);
  }
  heights = Spread(heights, 13, area.top + 4, area.bottom + 4);
  for (size_t i = 0; i < lines.size(); ++i) {
    chart->Text(area.right + 8, heights[i], "start", lines[i].first, classes);
  }
}

double BarsOf(const Moment& moment) {
  double sum = 0;
  for (const Outcome outcome : kBars) sum += moment.rates[static_cast<size_t>(outcome)];
  return sum;
}

double MostBars(const std::vector<Moment>& moments) {
  double most = 0;
  for (const Moment& moment : moments) most = std::max(most, BarsOf(moment));
  return most;
}

void Bars(Chart* chart, const Area& area, const Scale& x, const std::vector<Moment>& moments,
          double step) {
  const double most = MostBars(moments);
  const Scale y = Scale::Linear(0, most, area.bottom, area.top);
  chart->LeftAxis(area, y, {0, RoundDown(most)}, RoundNumber);
  for (const Moment& moment : moments) {
    const double left = x.At(moment.middle - step / 2), right = x.At(moment.middle + step / 2);
    // A gap where there is room for one.
    const double width = std::max(right - left - (right - left > 3 ? 1 : 0), 0.8);
    double below = 0;
    for (const Outcome outcome : kBars) {
      const double rate = moment.rates[static_cast<size_t>(outcome)];
      const double bottom = y.At(below), top = y.At(below + rate);
      chart->Box(left, top, width, bottom - top, std::string("bar ") + NameOf(outcome));
      below += rate;
    }
  }
}

std::string ClassChart(const RunData& run, size_t cls, const Timeline& timeline, const Axes& axes,
                       const Size& size) {
  const std::vector<Moment>& moments = timeline.classes[cls];
  const bool bars = MostBars(moments) > 0;
  const double latency = size.name == "wide" ? 170 : 150;
  const double end = 10 + latency + (bars ? 58 : 0);
  Chart chart(size, end + kAxisSpace, "time" + std::to_string(cls),
              "Latency over time of " + ClassName(run, cls),
              "Median, p99 and greatest latency of each second from the intended time, and below "
              "them the requests per second that got no OK answer.");
  const Area area = chart.Between(10, 10 + latency);
  const Scale x = TimeScale(axes, area);
  const Scale y = Scale::Log(axes.low, axes.high, area.bottom, area.top);
  chart.LeftAxis(area, y, y.Ticks(6), RoundTime);
  const std::string series = SeriesClass(cls);
  const auto p50 = PointsOf(moments, x, y, [](const Moment& moment) { return moment.p50; });
  const auto p99 = PointsOf(moments, x, y, [](const Moment& moment) { return moment.p99; });
  const auto max = PointsOf(moments, x, y, [](const Moment& moment) { return moment.max; });
  chart.Band(p50, p99, series);
  chart.Line(max, series + " faint");
  chart.Line(p50, series);
  chart.Line(p99, series + " strong");
  if (cls < run.objectives.size()) {
    for (const LatencyGoal& goal : run.objectives[cls].latencies) {
      const auto limit = static_cast<double>(goal.limit.count());
      if (limit < y.low() || limit > y.high()) continue;
      chart.Rule(area.left, y.At(limit), area.right, y.At(limit), "goal");
      chart.Text(area.left + 4, y.At(limit) - 4, "start", "objective " + GoalSign(goal), "note");
    }
  }
  EndLabels(&chart, area, {{"max", max}, {"p99", p99}, {"median", p50}}, "label");
  Area below = area;
  if (bars) {
    below = chart.Between(area.bottom + 26, end);
    chart.Text(area.left, below.top - 7, "start", "without an OK answer, per second", "note");
    Bars(&chart, below, x, moments, timeline.step);
  }
  TimeAxis(&chart, below, x, axes);
  return chart.Take();
}

std::string RatesChart(const Timeline& timeline, const Axes& axes, const Size& size) {
  Chart chart(size, 10 + 110 + kAxisSpace, "rates", "Requests per second, all classes",
              "Planned requests and OK answers of each second, by their intended time.");
  const Area area = chart.Between(10, 120);
  const Scale x = TimeScale(axes, area);
  double most = 0;
  for (const Moment& moment : timeline.all) most = std::max(most, moment.planned);
  const Scale y = Scale::Linear(0, std::max(most * 1.05, 1.0), area.bottom, area.top);
  chart.LeftAxis(area, y, y.Ticks(3), RoundNumber);
  const auto planned = PointsOf(timeline.all, x, y, [](const Moment& m) { return m.planned; });
  const auto ok = PointsOf(timeline.all, x, y, [](const Moment& m) {
    return m.rates[static_cast<size_t>(Outcome::kOk)];
  });
  std::vector<Point> floor = ok;
  for (Point& point : floor) point.y = area.bottom;
  chart.Band(floor, ok, "plain");
  chart.Line(planned, "plain faint");
  chart.Line(ok, "plain strong");
  EndLabels(&chart, area, {{"planned", planned}, {"OK", ok}}, "label");
  TimeAxis(&chart, area, x, axes);
  return chart.Take();
}

std::string InFlightChart(const Timeline& timeline, const Axes& axes, const Size& size) {
  Chart chart(size, 10 + 80 + kAxisSpace, "flight", "Requests in flight, all classes",
              "The most requests in flight at the end of a second.");
  const Area area = chart.Between(10, 90);
  const Scale x = TimeScale(axes, area);
  double most = 1;
  for (const Moment& moment : timeline.all) most = std::max(most, moment.in_flight);
  const Scale y = Scale::Linear(0, most * 1.05, area.bottom, area.top);
  chart.LeftAxis(area, y, y.Ticks(3), RoundNumber);
  chart.Line(PointsOf(timeline.all, x, y, [](const Moment& m) { return m.in_flight; }),
             "plain strong");
  TimeAxis(&chart, area, x, axes);
  return chart.Take();
}

std::string LagChart(const Timeline& timeline, const Axes& axes, const Size& size) {
  Chart chart(size, 10 + 90 + kAxisSpace, "lag", "The client's greatest lag",
              "How much later than intended a request was sent, the most in each second.");
  const Area area = chart.Between(10, 100);
  const Scale x = TimeScale(axes, area);
  double most = 1e5;
  for (const Moment& moment : timeline.all) most = std::max(most, moment.max_lag);
  const Scale y = Scale::Log(1e3, RoundUp(most), area.bottom, area.top);
  chart.LeftAxis(area, y, y.Ticks(4), RoundTime);
  chart.Line(PointsOf(timeline.all, x, y, [](const Moment& m) { return m.max_lag; }),
             "plain strong");
  TimeAxis(&chart, area, x, axes);
  return chart.Take();
}

}  // namespace

std::string TimelineFigures(const RunData& run) {
  if (run.seconds.empty()) return "";
  std::vector<Timeline> timelines;  // by size
  for (const Size& size : kSizes) timelines.push_back(MakeTimeline(run, size.points));
  const Axes axes = AxesOf(timelines[0], run);

  Markup figures;
  const auto add = [&](const std::string& heading, const std::string& caption, const auto& draw,
                       const std::string& data) {
    figures.Open("figure", {{"class", "panel"}, {"data-panel", data}}).NewLine();
    figures.Put("figcaption", heading, {{"class", "head"}}).NewLine();
    for (size_t i = 0; i < timelines.size(); ++i) figures.Add(draw(timelines[i], kSizes[i]));
    if (!caption.empty()) figures.Put("p", caption, {{"class", "caption"}}).NewLine();
    figures.Close().NewLine();
  };
  figures.Open("p", {{"class", "legend"}});
  figures.Add(LegendEntry("plain strong", "p99"));
  figures.Add(LegendEntry("plain", "median"));
  figures.Add(LegendEntry("plain faint", "max"));
  for (const Outcome outcome : kBars) {
    figures.Open("span", {{"class", "key"}});
    figures.Open("svg", {{"viewBox", "0 0 12 12"}, {"class", "box"}, {"aria-hidden", "true"}});
    figures.Empty(
        "rect",
        {{"class", std::string("bar ") + NameOf(outcome)}, {"width", "12"}, {"height", "12"}});
    figures.Close().Text(NameOf(outcome)).Close().NewLine();
  }
  figures.Close().NewLine();
  figures.Put(
      "p",
      "By second of the intended time, in minutes and seconds since the begin" +
          std::string(timelines[0].step > 1 ? "; a point spans " + SecondsText(timelines[0].step)
                                            : "") +
          ". A shade lies between the median and p99.",
      {{"class", "caption"}});
  figures.NewLine();
  for (size_t cls = 0; cls < run.classes.size(); ++cls) {
    add(
        ClassName(run, cls), "",
        [&](const Timeline& timeline, const Size& size) {
          return ClassChart(run, cls, timeline, axes, size);
        },
        "c" + std::to_string(cls));
  }
  const auto all = [&axes](auto draw) {
    return [&axes, draw](const Timeline& timeline, const Size& size) {
      return draw(timeline, axes, size);
    };
  };
  add("All classes: requests per second, planned and OK", "", all(RatesChart), "rates");
  add("All classes: requests in flight", "", all(InFlightChart), "flight");
  add("The client: how late a request was sent, at most", "", all(LagChart), "lag");
  return figures.whole();
}

}  // namespace castor::load
