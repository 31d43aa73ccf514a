// Two runs beside each other.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/report.h"
#include "client/load/output/chart.h"
#include "client/load/output/figures.h"
#include "client/load/output/html.h"
#include "client/load/output/html_charts.h"
#include "client/load/output/html_tables.h"
#include "client/load/output/page.h"
#include "client/load/output/text.h"
#include "client/load/output/timeline.h"

namespace castor::load {
namespace {

// Run A and B in all charts here.
constexpr std::string_view kLookA = "s5", kLookB = "s1";

std::string ValueText(const CompareRow& row, double value) {
  switch (row.kind) {
    case CompareRow::Kind::kDuration:
      return TimeSign(value);
    case CompareRow::Kind::kRate:
      return RateText(value) + "/s";
    case CompareRow::Kind::kShare:
      return PercentText(value, 1);
  }
  return "";
}

std::string UnitOf(const CompareRow& row) {
  return row.kind == CompareRow::Kind::kShare ? " points" : "%";
}

// A share changes by points, everything else by a share of what it was.
std::string ChangeText(const CompareRow& row) {
  if (!std::isfinite(row.change)) return "–";
  return cli::FormatReal(100 * row.change, "%+.1f") + UnitOf(row);
}

std::string IntervalText(const CompareRow& row) {
  if (!std::isfinite(row.low) || !std::isfinite(row.high)) return "too few answers to tell";
  const std::string to = row.kind == CompareRow::Kind::kShare ? " to " : "% to ";
  return cli::FormatReal(100 * row.low, "%+.1f") + to + cli::FormatReal(100 * row.high, "%+.1f") +
         UnitOf(row);
}

std::string_view LookOf(CompareRow::Judgement judgement) {
  switch (judgement) {
    case CompareRow::Judgement::kBetter:
      return "better";
    case CompareRow::Judgement::kWorse:
      return "worse";
    case CompareRow::Judgement::kSame:
      break;
  }
  return "same";
}

// Each change as a dot with its interval, around a line of no change.
std::string ChangesChart(const CompareView& view, const Size& size) {
  const bool wide = size.name == "wide";
  const double row_height = wide ? 26 : 42, names = wide ? 250 : 6, values = wide ? 190 : 6;
  const double bottom = 8 + row_height * static_cast<double>(view.rows.size());
  Chart chart(size, bottom + kAxisSpace, "changes",
              "Change from " + view.name_a + " to " + view.name_b,
              "The change of each figure with its confidence interval. The table below holds the "
              "same figures.");
  double most = 0.05;
  for (const CompareRow& row : view.rows) {
    for (const double value : {row.low, row.high, row.change}) {
      if (std::isfinite(value)) most = std::max(most, std::abs(value));
    }
  }
  most = std::min(most * 1.05, 2.0);
  const Area area{names, 8, size.width - values, bottom};
  const Scale x = Scale::Linear(-most, most, area.left, area.right);
  std::vector<double> ticks = x.Ticks(wide ? 8 : 4);
  for (const double tick : ticks) {
    chart.Rule(x.At(tick), area.top, x.At(tick), area.bottom, tick == 0 ? "zero" : "grid");
  }
  chart.BottomAxis(area, x, ticks, [](double tick) {
    return cli::FormatReal(100 * tick, tick == 0 ? "%.0f%%" : "%+.3g%%");
  });
  for (size_t i = 0; i < view.rows.size(); ++i) {
    const CompareRow& row = view.rows[i];
    const double top = area.top + row_height * static_cast<double>(i);
    const double y = wide ? top + row_height / 2 : top + 30;
    const std::string name = row.cls + (row.cls.empty() ? "" : " · ") + row.metric;
    const std::string value = ChangeText(row) + "  (" + IntervalText(row) + ")";
    if (wide) {
      chart.Text(0, y + 4, "start", FitText(name, 36), "label");
      chart.Text(size.width, y + 4, "end", value, "tick");
    } else {
      chart.Text(area.left, top + 14, "start", FitText(name, 24), "label");
      chart.Text(area.right, top + 14, "end", ChangeText(row), "tick");
    }
    if (!std::isfinite(row.change)) continue;
    const std::string look(LookOf(row.judgement));
    if (std::isfinite(row.low) && std::isfinite(row.high)) {
      chart.Rule(x.At(row.low), y, x.At(row.high), y, "line interval " + look);
    }
    chart.Box(x.At(row.change) - 4, y - 4, 8, 8, "dot " + look, name + ": " + value);
  }
  return chart.Take();
}

std::string ChangesTable(const CompareView& view) {
  std::vector<TableRow> rows;
  for (const CompareRow& row : view.rows) {
    const bool first = rows.empty() || view.rows[rows.size() - 1].cls != row.cls;
    TableCell verdict{row.verdict, "text"};
    if (row.judgement == CompareRow::Judgement::kBetter) {
      verdict = {"✓ " + row.verdict, "text passed"};
    } else if (row.judgement == CompareRow::Judgement::kWorse) {
      verdict = {"✗ " + row.verdict, "text missed"};
    }
    rows.push_back({.cells = {{first ? row.cls : "", ""},
                              {row.metric, "text"},
                              {ValueText(row, row.a), "nowrap"},
                              {ValueText(row, row.b), "nowrap"},
                              {ChangeText(row), "nowrap"},
                              {IntervalText(row), "nowrap"},
                              verdict},
                    .classes = first ? "" : "more"});
  }
  return HtmlTable("Changes, with intervals of " + PercentText(view.confidence, 1) + " confidence",
                   {"class", "figure", view.name_a, view.name_b, "change", "interval", "verdict"},
                   rows);
}

// A class of both runs; nothing where a run does not have it.
struct Both {
  std::string name;
  std::optional<size_t> a = std::nullopt, b = std::nullopt;
};

std::vector<Both> ClassesOf(const RunData& a, const RunData& b) {
  std::vector<Both> classes;
  for (size_t i = 0; i < a.classes.size(); ++i) classes.push_back({.name = a.classes[i], .a = i});
  for (size_t i = 0; i < b.classes.size(); ++i) {
    const auto found = std::find_if(classes.begin(), classes.end(),
                                    [&](const Both& both) { return both.name == b.classes[i]; });
    if (found == classes.end()) {
      classes.push_back({.name = b.classes[i], .b = i});
    } else {
      found->b = i;
    }
  }
  return classes;
}

std::string Legend(const CompareView& view) {
  Markup legend;
  legend.Open("p", {{"class", "legend"}});
  legend.Add(LegendEntry(std::string(kLookA) + " strong dashed", view.name_a));
  legend.Add(LegendEntry(std::string(kLookB) + " strong", view.name_b));
  legend.Close().NewLine();
  return legend.whole();
}

std::string CurvesChart(const std::string& id, const std::string& name, const Histogram& a,
                        const Histogram& b, Size size) {
  size.right = 24;  // no names stand there
  Chart chart(size, 222 + kAxisSpace, id, "Latency by percentile of " + name,
              "Latency from the intended time for each percentile, of both runs.");
  const Area area = chart.Between(10, 222);
  double low = 1e18, high = 2e3;
  int64_t count = 100;
  for (const Histogram* histogram : {&a, &b}) {
    if (histogram->empty()) continue;
    low = std::min(low, static_cast<double>(histogram->ValueAt(0.05)));
    high = std::max(high, static_cast<double>(histogram->max()));
    count = std::max(count, histogram->count());
  }
  const double floor = std::min(RoundDown(std::max(low, 1e3)), RoundUp(high) / 2);
  const Scale x = Scale::Log(1, static_cast<double>(count), area.left, area.right);
  const Scale y = Scale::Log(floor, RoundUp(high), area.bottom, area.top);
  chart.LeftAxis(area, y, y.Ticks(7), RoundTime);
  std::vector<double> ticks;
  for (double odds = 1; odds <= static_cast<double>(count) * 1.001; odds *= 10) {
    ticks.push_back(odds);
  }
  chart.BottomAxis(area, x, ticks,
                   [](double odds) { return cli::FormatReal(100 * (1 - 1 / odds), "%.7g%%"); });
  const auto curve = [&](const Histogram& histogram) {
    std::vector<Point> points;
    for (const PercentilePoint& point : CurveOf(histogram, size.points)) {
      points.push_back({x.At(point.odds), y.At(static_cast<double>(point.value))});
    }
    return points;
  };
  chart.Line(curve(a), std::string(kLookA) + " strong dashed");
  chart.Line(curve(b), std::string(kLookB) + " strong");
  return chart.Take();
}

std::string TimeChart(const std::string& id, const std::string& name, const std::vector<Moment>& a,
                      const std::vector<Moment>& b, double seconds, Size size) {
  size.right = 24;
  Chart chart(size, 182 + kAxisSpace, id, "p99 over time of " + name,
              "p99 latency of each second from the intended time, of both runs.");
  const Area area = chart.Between(10, 182);
  double low = 1e18, high = 2e3;
  for (const auto* moments : {&a, &b}) {
    for (const Moment& moment : *moments) {
      if (std::isnan(moment.p99)) continue;
      low = std::min(low, moment.p99);
      high = std::max(high, moment.p99);
    }
  }
  const double floor = std::min(RoundDown(std::max(low, 1e3)), RoundUp(high) / 2);
  const Scale x = Scale::Linear(0, seconds, area.left, area.right);
  const Scale y = Scale::Log(floor, RoundUp(high), area.bottom, area.top);
  chart.LeftAxis(area, y, y.Ticks(6), RoundTime);
  chart.BottomAxis(area, x, TimeTicks(seconds, chart.wide() ? 12 : 6), ClockText);
  const auto line = [&](const std::vector<Moment>& moments) {
    std::vector<Point> points;
    for (const Moment& moment : moments) {
      points.push_back(
          {x.At(moment.middle), std::isnan(moment.p99) ? moment.p99 : y.At(moment.p99)});
    }
    return points;
  };
  chart.Line(line(a), std::string(kLookA) + " dashed");
  chart.Line(line(b), std::string(kLookB) + " strong");
  return chart.Take();
}

// A figure for each class; `draw` makes one of its two sizes.
template <typename Draw>
std::string Figures(const std::vector<Both>& classes, const CompareView& view, const Draw& draw) {
  Markup figures;
  figures.Add(Legend(view));
  for (size_t i = 0; i < classes.size(); ++i) {
    figures.Open("figure", {{"class", "panel"}}).NewLine();
    figures.Put("figcaption", classes[i].name, {{"class", "head"}}).NewLine();
    for (const Size& size : kSizes) figures.Add(draw(classes[i], i, size));
    figures.Close().NewLine();
  }
  return figures.whole();
}

std::string Curves(const RunData& a, const RunData& b, const CompareView& view) {
  const std::vector<Cell> cells_a = ByClass(a), cells_b = ByClass(b);
  const Histogram none;
  const auto of = [&none](const std::vector<Cell>& cells,
                          std::optional<size_t> cls) -> const Histogram& {
    return cls && *cls < cells.size() ? cells[*cls].intended : none;
  };
  return Figures(ClassesOf(a, b), view, [&](const Both& both, size_t i, const Size& size) {
    return CurvesChart("curve" + std::to_string(i), both.name, of(cells_a, both.a),
                       of(cells_b, both.b), size);
  });
}

std::string Timelines(const RunData& a, const RunData& b, const CompareView& view) {
  const auto seconds =
      static_cast<double>(std::max<size_t>({a.seconds.size(), b.seconds.size(), 1}));
  const auto of = [](const Timeline& timeline, std::optional<size_t> cls) {
    return cls ? timeline.classes[*cls] : std::vector<Moment>();
  };
  return Figures(ClassesOf(a, b), view, [&](const Both& both, size_t i, const Size& size) {
    return TimeChart("p99-" + std::to_string(i), both.name,
                     of(MakeTimeline(a, size.points), both.a),
                     of(MakeTimeline(b, size.points), both.b), seconds, size);
  });
}

std::string RunsTable(const RunData& a, const RunData& b, const CompareView& view) {
  std::vector<TableRow> rows;
  const auto add = [&rows](const std::string& name, const std::string& in_a,
                           const std::string& in_b) {
    rows.push_back({.cells = {{name, ""}, {in_a, "prose"}, {in_b, "prose"}}});
  };
  const auto endpoints = [](const RunData& run) {
    std::string text;
    for (const std::string& endpoint : run.endpoints) text += (text.empty() ? "" : ", ") + endpoint;
    return text;
  };
  add("begun", a.begun, b.begun);
  add("load", LoopText(a) + ", " + SecondsText(a.asked_seconds),
      LoopText(b) + ", " + SecondsText(b.asked_seconds));
  add("planned requests", CountText(a.Total().planned()), CountText(b.Total().planned()));
  add("endpoints", endpoints(a), endpoints(b));
  add("server", a.server_version, b.server_version);
  add("castor-load", a.client_version, b.client_version);
  add("workload", a.workload_toml == b.workload_toml ? "the same" : "differs", "");
  return HtmlTable("The two runs", {"", view.name_a, view.name_b}, rows);
}

void AddPart(const std::string& heading, const std::string& content, Markup* body) {
  body->Open("section").NewLine().Put("h2", heading).NewLine().Add(content).Close().NewLine();
}

}  // namespace

std::string CompareHtml(const RunData& a, const RunData& b, const CompareView& view) {
  Markup body;
  body.Open("header").NewLine().Put("h1", "Two load tests compared").NewLine();
  body.Put("p", view.name_a + " and " + view.name_b, {{"class", "setting"}}).NewLine();
  body.Open("p", {{"class", "verdict"}});
  body.Put("span", (view.worse ? "✗ " : "") + view.headline,
           {{"class", view.worse ? "missed" : ""}});
  body.Close().NewLine();
  if (!view.warnings.empty()) {
    body.Open("ul");
    for (const std::string& warning : view.warnings) body.Put("li", warning);
    body.Close().NewLine();
  }
  body.Close().NewLine().Open("main").NewLine();
  if (!view.rows.empty()) {
    Markup figure;
    figure.Open("figure").NewLine();
    for (const Size& size : kSizes) figure.Add(ChangesChart(view, size));
    figure.Put("figcaption",
               "Change from " + view.name_a + " to " + view.name_b +
                   ", with its interval. One that crosses the middle line may be chance.");
    figure.Close().NewLine();
    AddPart("What changed", figure.whole() + ChangesTable(view), &body);
  }
  AddPart("Latency by percentile, from the intended time", Curves(a, b, view), &body);
  AddPart("p99 over time, from the intended time", Timelines(a, b, view), &body);
  AddPart("The runs", RunsTable(a, b, view), &body);
  body.Close().NewLine();
  body.Put("footer", "Written by castor-load.").NewLine();
  return Page("Two load tests compared", body.whole(), "");
}

}  // namespace castor::load
