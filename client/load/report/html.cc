#include "client/load/report/html.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/report.h"
#include "client/cli/text.h"
#include "client/load/report/charts.h"
#include "client/load/report/markup.h"
#include "client/load/report/summary.h"

namespace castor::load {

extern const std::string_view kReportCss;  // report.css, built in

namespace {

using cli::CountText;
using cli::RateText;
using Row = std::vector<std::string>;

// Nothing where there are no rows. The first column, and those named in `prose`, hold text.
std::string Table(const std::string& caption, const Row& head, const std::vector<Row>& rows,
                  const std::vector<size_t>& prose = {}) {
  if (rows.empty()) return "";
  const auto class_of = [&](size_t column) -> std::string_view {
    const bool text = std::find(prose.begin(), prose.end(), column) != prose.end();
    return column == 0 || text ? "text" : "";
  };
  Markup table;
  table.Open("div", {{"class", "scroll"}}).Open("table").Put("caption", caption);
  table.Open("tr");
  for (size_t i = 0; i < head.size(); ++i) table.Put("th", head[i], {{"class", class_of(i)}});
  table.Close().NewLine();
  for (const Row& row : rows) {
    table.Open("tr");
    for (size_t i = 0; i < row.size(); ++i) table.Put("td", row[i], {{"class", class_of(i)}});
    table.Close().NewLine();
  }
  table.Close().Close().NewLine();
  return table.whole();
}

// A section with a heading, unless there is nothing in it.
void AddSection(const std::string& heading, const std::string& content, Markup* page) {
  if (content.empty()) return;
  page->Open("section").NewLine().Put("h2", heading).NewLine().Add(content).Close().NewLine();
}

std::string Time(const Histogram& histogram, double ns) {
  return histogram.empty() ? "–" : cli::TimeText(ns);
}
std::string Quantile(const Histogram& histogram, double quantile) {
  return Time(histogram, static_cast<double>(histogram.ValueAt(quantile)));
}

void AddHead(const RunData& run, const Verdict& verdict, Markup* page) {
  const auto mark = [&](bool passed, const std::string& text) {
    page->Put("p", (passed ? "✓ " : "✗ ") + text, {{"class", passed ? "passed" : "missed"}});
    page->NewLine();
  };
  page->Open("header").NewLine().Put("h1", "Load test").NewLine();
  page->Put("p", LoopText(run) + " for " + cli::FormatReal(run.asked_seconds, "%.4g s") +
                     ", begun " + run.begun);
  mark(verdict.valid(), ValidityText(verdict));
  mark(verdict.met(), ObjectivesText(verdict));
  page->Open("ul");
  for (const auto* findings : {&verdict.validity, &verdict.objectives}) {
    for (const Finding& finding : *findings) {
      if (finding.passed) continue;
      page->Open("li").Put("strong", finding.rule).Text(": " + finding.text).Close();
    }
  }
  page->Close().Close().NewLine();
}

std::string LatencyTable(const RunData& run) {
  std::vector<Row> rows;
  for (size_t i = 0; i < run.classes.size(); ++i) {
    const Cell cell = run.OfClass(i);
    const std::pair<const char*, const Histogram*> times[] = {
        {"from the intended time", &cell.intended},
        {"from sending", &cell.service},
        {"client's lag", &cell.lag}};
    for (const auto& [what, histogram] : times) {
      Row row = {run.classes[i], what, CountText(histogram->count()),
                 Time(*histogram, histogram->mean())};
      for (const double quantile : {0.5, 0.9, 0.99, 0.999}) {
        row.push_back(Quantile(*histogram, quantile));
      }
      row.push_back(Time(*histogram, static_cast<double>(histogram->max())));
      rows.push_back(std::move(row));
    }
  }
  return Table("Latency of OK answers, and the lag of all that were sent",
               {"class", "time", "count", "mean", "p50", "p90", "p99", "p99.9", "max"}, rows, {1});
}

std::string OutcomeTable(const RunData& run) {
  std::vector<Row> rows;
  const double seconds = run.MeasuredSeconds();
  const auto add = [&](const std::string& name, const Cell& cell) {
    Row& row = rows.emplace_back(Row{name, CountText(cell.planned())});
    for (const int64_t count : cell.outcomes) row.push_back(CountText(count));
    for (const int64_t count : {cell.of(Outcome::kOk), cell.good, cell.tokens}) {
      row.push_back(seconds > 0 ? RateText(static_cast<double>(count) / seconds) : "–");
    }
  };
  for (size_t i = 0; i < run.classes.size(); ++i) add(run.classes[i], run.OfClass(i));
  if (run.classes.size() > 1) add("all", run.Total());
  for (size_t i = 0; run.endpoints.size() > 1 && i < run.endpoints.size(); ++i) {
    add(run.endpoints[i], run.OfEndpoint(i));
  }
  return Table(
      "By class, and by endpoint if there are several. Good answers are OK and within the "
      "class's latency limits",
      {"", "planned", "OK", "refused", "expired", "cancelled", "failed", "dropped", "OK/s",
       "good/s", "tokens/s"},
      rows);
}

std::string MessageTable(const RunData& run) {
  std::vector<std::pair<int64_t, Row>> messages;
  for (size_t i = 0; i < run.classes.size(); ++i) {
    for (const auto& [text, count] : run.OfClass(i).messages) {
      messages.push_back({count, {run.classes[i], CountText(count), text}});
    }
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Row> rows;
  for (auto& message : messages) rows.push_back(std::move(message.second));
  return Table("Errors by message", {"class", "count", "message"}, rows, {2});
}

std::string StageTable(const RunData& run) {
  std::vector<Row> rows;
  for (size_t i = 0; i < run.classes.size(); ++i) {
    const Cell cell = run.OfClass(i);
    const Stages& stages = cell.stages;
    if (stages.server.empty()) continue;
    const auto add = [&](const char* name, const auto& figure) {
      Row& row = rows.emplace_back(Row{run.classes[i], name});
      for (const Histogram* histogram :
           {&stages.queue, &stages.compute, &stages.server, &stages.network}) {
        row.push_back(figure(*histogram));
      }
      row.push_back(PercentText(static_cast<double>(stages.predicted_within),
                                static_cast<double>(stages.predicted)));
    };
    add("mean", [](const Histogram& histogram) { return Time(histogram, histogram.mean()); });
    add("p50", [](const Histogram& histogram) { return Quantile(histogram, 0.5); });
    add("p99", [](const Histogram& histogram) { return Quantile(histogram, 0.99); });
  }
  return Table("By the server's account",
               {"class", "", "queue", "compute", "server, all", "network", "predicted within 25%"},
               rows, {1});
}

std::string FindingsTable(const std::string& caption, const std::vector<Finding>& findings) {
  std::vector<Row> rows;
  for (const Finding& finding : findings) {
    rows.push_back({finding.rule, finding.passed ? "✓" : "✗", finding.text});
  }
  return Table(caption, {"rule", "", "finding"}, rows, {1, 2});
}

std::string Setting(const RunData& run) {
  std::vector<Row> rows = {{"castor-load", run.client_version},
                           {"server", run.server_version.empty() ? "unknown" : run.server_version},
                           {"seed", std::to_string(run.seed)}};
  for (const std::string& endpoint : run.endpoints) rows.push_back({"endpoint", endpoint});
  for (const ClientLoad& client : run.clients) {
    rows.push_back({"client " + std::to_string(client.share),
                    PercentText(client.cpu_seconds, client.seconds) +
                        " of a core, the busiest thread " + PercentText(client.busiest_thread, 1)});
  }
  Markup section;
  section.Add(Table("What ran, and against what", {"", ""}, rows, {1}));
  if (!run.workload.empty()) {
    section.Open("pre").Open("code").Text(run.workload).Close().Close().NewLine();
  }
  return section.whole();
}

}  // namespace

std::string ReportHtml(const RunData& run, const Verdict& verdict) {
  std::string timelines;
  for (size_t i = 0; i < run.classes.size(); ++i) {
    timelines += Markup().Put("h3", run.classes[i]).NewLine().whole() + TimelineChart(run, i);
  }
  Markup page;
  page.Add("<!DOCTYPE html>\n").Open("html", {{"lang", "en"}}).NewLine();
  page.Open("head").NewLine().Empty("meta", {{"charset", "utf-8"}}).NewLine();
  page.Empty("meta", {{"http-equiv", "Content-Security-Policy"},
                      {"content", "default-src 'none'; style-src 'unsafe-inline'"}});
  page.NewLine();
  page.Empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  page.NewLine().Put("title", "Load test, " + run.begun).NewLine();
  page.Open("style").Add(kReportCss).Close().NewLine().Close().NewLine();
  page.Open("body").NewLine();
  AddHead(run, verdict, &page);
  AddSection("Latency", LatencyTable(run) + PercentileChart(run), &page);
  AddSection("Latency over time", timelines, &page);
  AddSection("How requests ended", OutcomeTable(run) + RateChart(run) + MessageTable(run), &page);
  AddSection("Where the time went", StageTable(run), &page);
  AddSection("Findings",
             FindingsTable("Objectives", verdict.objectives) +
                 FindingsTable("Rules of validity", verdict.validity),
             &page);
  AddSection("Setting", Setting(run), &page);
  page.Close().NewLine().Close().NewLine();
  return page.whole();
}

}  // namespace castor::load
