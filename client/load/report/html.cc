#include <string_view>

#include "client/load/report/markup.h"
#include "client/load/report/report.h"

namespace castor::load {

extern const std::string_view kReportCss;  // report.css, built in

namespace {

// Nothing where there are no rows.
std::string HtmlOf(const Table& table) {
  if (table.rows.empty()) return "";
  const auto class_of = [&](size_t column) { return column < table.text_columns ? "text" : ""; };
  Markup html;
  html.Open("div", {{"class", "scroll"}}).Open("table").Put("caption", table.caption).Open("tr");
  for (size_t i = 0; i < table.head.size(); ++i) {
    html.Put("th", table.head[i], {{"class", class_of(i)}});
  }
  html.Close();
  for (const Table::Row& row : table.rows) {
    html.Open("tr");
    for (size_t i = 0; i < row.size(); ++i) html.Put("td", row[i], {{"class", class_of(i)}});
    html.Close();
  }
  return html.Close().Close().whole();
}

// A section with a heading, unless there is nothing in it.
void AddSection(const std::string& heading, const std::string& content, Markup* page) {
  if (content.empty()) return;
  page->Open("section").Put("h2", heading).Add(content).Close();
}

void AddHead(const RunData& run, const Verdict& verdict, Markup* page) {
  const auto mark = [&](bool passed, const std::string& text) {
    page->Put("p", (passed ? "✓ " : "✗ ") + text, {{"class", passed ? "passed" : "missed"}});
  };
  page->Open("header").Put("h1", "Load test").Put("p", LoopText(run) + ", begun " + run.begun);
  mark(verdict.valid(), ValidityText(verdict));
  mark(verdict.met(), ObjectivesText(verdict));
  page->Close();
}

}  // namespace

std::string ReportHtml(const RunData& run, const Verdict& verdict) {
  std::string timelines;
  for (size_t i = 0; i < run.classes.size(); ++i) {
    timelines += Markup().Put("h3", run.classes[i]).whole() + TimelineChart(run, i);
  }
  Markup workload;
  if (!run.workload.empty()) workload.Open("pre").Put("code", run.workload).Close();
  Markup page;
  page.Add("<!DOCTYPE html>\n").Open("html", {{"lang", "en"}}).Open("head");
  page.Empty("meta", {{"charset", "utf-8"}});
  page.Empty("meta", {{"http-equiv", "Content-Security-Policy"},
                      {"content", "default-src 'none'; style-src 'unsafe-inline'"}});
  page.Empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  page.Put("title", "Load test, " + run.begun);
  page.Open("style").Add(kReportCss).Close().Close().Open("body");
  AddHead(run, verdict, &page);
  AddSection("Findings", HtmlOf(FindingsTable(verdict)), &page);
  AddSection("Latency", HtmlOf(LatencyTable(run)) + PercentileChart(run), &page);
  AddSection("Latency over time", timelines, &page);
  AddSection("How requests ended",
             HtmlOf(OutcomeTable(run)) + RateChart(run) + HtmlOf(MessageTable(run)), &page);
  AddSection("Where the time went", HtmlOf(StageTable(run)), &page);
  AddSection("Setting", HtmlOf(SettingTable(run)) + workload.whole(), &page);
  return page.Close().Close().whole();
}

}  // namespace castor::load
