#include <absl/strings/str_replace.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "client/cli/report.h"
#include "client/load/report/report.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {

extern const std::string_view kReportCss;  // report.css, built in

namespace {

// Escapes text for elements, and for attributes in double quotes.
std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(
      cli::CleanText(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

// An element. `content` and `attributes` are markup already.
std::string Element(const std::string& name, const std::string& content,
                    const std::string& attributes = "") {
  return "<" + name + (attributes.empty() ? "" : " ") + attributes + ">" + content + "</" + name +
         ">\n";
}

// An element that holds only text.
std::string Text(const std::string& name, std::string_view text,
                 const std::string& attributes = "") {
  return Element(name, Escaped(text), attributes);
}

std::string Class(const std::string& name) { return "class=\"" + name + "\""; }

// ---- charts: SVG without colours, which report.css gives them in light, in dark and in print

constexpr double kWidth = 920, kLeft = 70, kRight = 90, kTop = 12, kBottom = 22, kHeight = 220;
constexpr size_t kMostPoints = 360;

struct Line {
  std::string name;
  std::string classes;         // of its path
  std::vector<double> values;  // NaN: a gap
};

std::string Position(double value) { return cli::FormatReal(value, "%.1f"); }

// Maps values to positions.
struct Scale {
  double low, high, from, to;
  bool log = false;

  double At(double value) const {
    const double inside = std::clamp(value, low, high);
    const double share =
        log ? std::log(inside / low) / std::log(high / low) : (inside - low) / (high - low);
    return from + share * (to - from);
  }

  // Powers of ten, and 2 and 5 times them where there are few; or 4 to 8 round steps.
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    const double power = std::pow(10, std::floor(std::log10(log ? low : high - low)));
    if (log) {
      for (double ten = power; ten <= high; ten *= 10) {
        for (const double digit : {1.0, 2.0, 5.0}) {
          const bool shown = digit == 1 || high / low < 300;
          if (shown && digit * ten >= low && digit * ten <= high) ticks.push_back(digit * ten);
        }
      }
      return ticks;
    }
    const double parts = (high - low) / power;  // 1 to 10
    const double step = power * (parts > 5 ? 2 : parts > 2 ? 1 : 0.5);
    for (double tick = std::ceil(low / step) * step; tick <= high; tick += step) {
      ticks.push_back(tick);
    }
    return ticks;
  }
};

std::string Path(const std::string& classes, const std::string& path) {
  return "<path " + Class(classes) + " d=\"" + path + "\"/>";
}

std::string Across(const std::string& classes, double y, double from = kLeft,
                   double to = kWidth - kRight) {
  return Path(classes, "M" + Position(from) + " " + Position(y) + "H" + Position(to));
}

std::string Label(double x, double y, const std::string& anchor, const std::string& text) {
  return Text("text", text,
              "x=\"" + Position(x) + "\" y=\"" + Position(y) + "\" text-anchor=\"" + anchor + "\"");
}

// An hour of seconds becomes a few hundred points.
size_t SecondsPerPoint(const RunData& run) {
  return std::max<size_t>(1, (run.seconds.size() + kMostPoints - 1) / kMostPoints);
}

// Lines over the time of the run, on a logarithmic scale if `log`; empty without values.
std::string Chart(const RunData& run, const std::string& title, const std::vector<Line>& lines,
                  bool log, std::string (*text)(double), const std::vector<LatencyGoal>& goals) {
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
    high = std::max(high, static_cast<double>(goal.limit.count()));
  }
  const Scale x{0, static_cast<double>(std::max<size_t>(1, run.seconds.size())), kLeft,
                kWidth - kRight};
  const Scale y{log ? 0.8 * std::max(low, 1.0) : 0, 1.1 * std::max(high, 1.0), kHeight - kBottom,
                kTop, log};
  std::string svg;
  for (const double tick : y.Ticks()) {
    svg += Across("grid", y.At(tick)) + Label(kLeft - 6, y.At(tick) + 4, "end", text(tick));
  }
  for (const double tick : x.Ticks()) {
    svg += Label(x.At(tick), kHeight - 4, "middle", cli::FormatReal(tick, "%g s"));
  }
  svg += Across("axis", kHeight - kBottom);
  for (const LatencyGoal& goal : goals) {
    const double at = y.At(static_cast<double>(goal.limit.count()));
    svg += Across("goal", at) + Label(kLeft + 4, at - 4, "start",
                                      QuantileName(goal.quantile) + " within " +
                                          cli::TimeText(static_cast<double>(goal.limit.count())));
  }
  const auto step = static_cast<double>(SecondsPerPoint(run));
  double legend = kTop + 4;
  for (const Line& line : lines) {
    std::string path;
    bool down = false;
    for (size_t i = 0; i < line.values.size(); ++i) {
      const bool gap = std::isnan(line.values[i]);
      if (!gap) {
        path += (down ? "L" : "M") + Position(x.At((static_cast<double>(i) + 0.5) * step)) + " " +
                Position(y.At(line.values[i]));
        if (!down) path += "h0";  // a single point is a dot: the line has round ends
      }
      down = !gap;
    }
    svg += Path("line " + line.classes, path) +
           Across("line " + line.classes, legend, kWidth - kRight + 6, kWidth - kRight + 20) +
           Label(kWidth - kRight + 26, legend + 4, "start", line.name);
    legend += 16;
  }
  return Element("svg", svg,
                 Class("chart") + " viewBox=\"0 0 " + Position(kWidth) + " " + Position(kHeight) +
                     "\" role=\"img\" aria-label=\"" + Escaped(title) + "\"");
}

// Percentiles of a class's latency.
std::string LatencyChart(const RunData& run, size_t cls) {
  std::vector<Line> lines = {{"max", "faint", {}}, {"p99", "strong", {}}, {"p50", "plain", {}}};
  const size_t step = SecondsPerPoint(run);
  for (size_t begin = 0; begin < run.seconds.size(); begin += step) {
    Histogram latency;
    for (size_t i = begin; i < std::min(run.seconds.size(), begin + step); ++i) {
      latency.Add(run.seconds[i][cls].intended);
    }
    const auto value = [&](double quantile) {
      return latency.empty() ? std::nan("") : static_cast<double>(latency.ValueAt(quantile));
    };
    lines[0].values.push_back(value(1));
    lines[1].values.push_back(value(0.99));
    lines[2].values.push_back(value(0.5));
  }
  return Chart(run, "Latency of " + run.classes[cls] + " over time", lines, /*log=*/true,
               cli::TimeText, run.objectives[cls].latencies);
}

// Answers and errors a second, of all classes.
std::string RateChart(const RunData& run) {
  std::vector<Line> lines = {{"OK", "plain", {}}, {"not OK", "bad", {}}};
  const size_t step = SecondsPerPoint(run);
  for (size_t begin = 0; begin < run.seconds.size(); begin += step) {
    const size_t end = std::min(run.seconds.size(), begin + step);
    double ok = 0, others = 0;
    for (size_t i = begin; i < end; ++i) {
      const Outcomes outcomes = run.OfSecond(i).outcomes;
      for (size_t k = 0; k < outcomes.size(); ++k) {
        (k == 0 ? ok : others) += static_cast<double>(outcomes[k]);
      }
    }
    lines[0].values.push_back(ok / static_cast<double>(end - begin));
    lines[1].values.push_back(others / static_cast<double>(end - begin));
  }
  return Chart(run, "Answers a second", lines, /*log=*/false, cli::RateText, {});
}

// ---- the page

// Empty without rows.
std::string HtmlOf(const Table& table) {
  if (table.rows.empty()) return "";
  const auto row_of = [&](const char* cell, const Table::Row& row) {
    std::string cells;
    for (size_t i = 0; i < row.size(); ++i) {
      cells += Text(cell, row[i], i < table.text_columns ? Class("text") : "");
    }
    return Element("tr", cells);
  };
  std::string rows = Text("caption", table.caption) + row_of("th", table.head);
  for (const Table::Row& row : table.rows) rows += row_of("td", row);
  return Element("div", Element("table", rows), Class("scroll"));
}

// A section with a heading; empty without content.
std::string Section(const std::string& heading, const std::string& content) {
  return content.empty() ? "" : Element("section", Text("h2", heading) + content);
}

std::string HeaderOf(const RunData& run, const Verdict& verdict) {
  const auto mark = [](bool passed, const std::string& text) {
    return Text("p", (passed ? "✓ " : "✗ ") + text, Class(passed ? "passed" : "missed"));
  };
  return Element("header", Text("h1", "Load test") +
                               Text("p", LoopText(run) + ", begun " + run.begun) +
                               mark(verdict.valid(), ValidityText(verdict)) +
                               mark(verdict.met(), ObjectivesText(verdict)));
}

}  // namespace

std::string ReportHtml(const RunData& run, const Verdict& verdict) {
  std::string timelines;
  for (size_t i = 0; i < run.classes.size(); ++i) {
    timelines += Text("h3", run.classes[i]) + LatencyChart(run, i);
  }
  const std::string workload =
      run.workload.empty() ? "" : Element("pre", Text("code", run.workload));
  const std::string head =
      "<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n" +
      Text("title", "Load test, " + run.begun) + Element("style", std::string(kReportCss));
  const std::string body =
      HeaderOf(run, verdict) + Section("Findings", HtmlOf(FindingsTable(verdict))) +
      Section("Latency", HtmlOf(LatencyTable(run))) + Section("Latency over time", timelines) +
      Section("How requests ended",
              HtmlOf(OutcomeTable(run)) + RateChart(run) + HtmlOf(MessageTable(run))) +
      Section("Where the time went", HtmlOf(StageTable(run))) +
      Section("Setting", HtmlOf(SettingTable(run)) + workload);
  return "<!DOCTYPE html>\n" +
         Element("html", Element("head", head) + Element("body", body), "lang=\"en\"");
}

}  // namespace castor::load
