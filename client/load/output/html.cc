#include "client/load/output/html.h"

#include <string_view>
#include <vector>

#include "client/load/measure/redact.h"
#include "client/load/output/figures.h"
#include "client/load/output/html_charts.h"
#include "client/load/output/html_tables.h"
#include "client/load/output/markup.h"
#include "client/load/output/page.h"
#include "client/load/output/text.h"

namespace castor::load {
namespace {

std::string Plural(size_t count, const std::string& one, const std::string& many) {
  return CountText(static_cast<int64_t>(count)) + " " + (count == 1 ? one : many);
}

void AddMark(Markup* page, bool passed, const std::string& text) {
  page->Put("span", (passed ? "✓ " : "✗ ") + text, {{"class", passed ? "passed" : "missed"}});
}

// The findings that failed, in full.
void AddFailed(Markup* page, const std::vector<Finding>& findings) {
  const std::vector<Finding> failed = FailedOf(findings);
  if (failed.empty()) return;
  page->Open("ul");
  for (const Finding& finding : failed) {
    page->Open("li").Put("strong", finding.rule).Text(": " + finding.text).Close();
  }
  page->Close().NewLine();
}

void AddHead(const RunData& run, const Verdict& verdict, Markup* page) {
  page->Open("header").NewLine().Put("h1", "Load test").NewLine();
  page->Put("p",
            Plural(run.classes.size(), "class", "classes") + ", " +
                Plural(run.endpoints.size(), "endpoint", "endpoints") + ", " + LoopText(run) +
                " for " + SecondsText(run.asked_seconds) + ", begun " + run.begun,
            {{"class", "setting"}});
  page->NewLine().Open("p", {{"class", "verdict"}});
  const size_t invalid = FailedOf(verdict.validity).size();
  const size_t missed = FailedOf(verdict.objectives).size();
  if (invalid == 0) {
    AddMark(page, true, "Valid");
    page->Text(": the run passed " +
               (verdict.validity.size() == 1
                    ? std::string("the rule")
                    : "all " + std::to_string(verdict.validity.size()) + " rules") +
               " of validity. ");
  } else {
    AddMark(page, false, "Invalid");
    page->Text(": the run failed " + std::to_string(invalid) + " of " +
               Plural(verdict.validity.size(), "rule", "rules") +
               " of validity, so its figures must not be used. ");
  }
  page->Empty("br");
  if (verdict.objectives.empty()) {
    page->Text("No objectives were set.");
  } else if (missed == 0) {
    AddMark(page, true, "Objectives met");
    page->Text(", all " + std::to_string(verdict.objectives.size()) + ".");
  } else {
    AddMark(page, false, "Objectives missed");
    page->Text(": " + std::to_string(missed) + " of " + std::to_string(verdict.objectives.size()) +
               ".");
  }
  page->Close().NewLine();
  AddFailed(page, verdict.validity);
  AddFailed(page, verdict.objectives);
  page->Add(OverviewTable(run)).Close().NewLine();
}

// A section with a heading, unless there is nothing in it.
void AddSection(const std::string& heading, const std::string& content, Markup* page) {
  if (content.empty()) return;
  page->Open("section").NewLine().Put("h2", heading).NewLine().Add(content).Close().NewLine();
}

std::string Prose(const std::string& text) { return Markup().Put("p", text).NewLine().whole(); }

std::string Outcomes(const RunData& run) {
  return OutcomeTable(run) + EndpointTable(run) + MessageTable(run);
}

std::string ServerStages(const RunData& run) {
  const std::string figure = StageFigure(run);
  return figure.empty() ? "" : figure + StageTable(run);
}

std::string Setting(const RunData& run) {
  std::vector<TableRow> rows = {
      {.cells = {{"castor-load", ""}, {run.client_version, "prose"}}},
      {.cells = {{"server", ""},
                 {run.server_version.empty() ? "unknown" : run.server_version, "prose"}}}};
  for (size_t i = 0; i < run.endpoints.size(); ++i) {
    rows.push_back({.cells = {{i == 0 ? "endpoints" : "", ""}, {run.endpoints[i], "prose"}},
                    .classes = i == 0 ? "" : "more"});
  }
  rows.push_back({.cells = {{"begun", ""}, {run.begun, "prose"}}});
  Markup section;
  section.Add(HtmlTable("What ran, and against what", {"", "version or address"}, rows));
  if (!run.workload_toml.empty()) {
    section.Add(Prose("The workload, with the seed that fixes its schedule and contents:"));
    section.Open("pre").Open("code").Text(RedactTokens(run.workload_toml)).Close().Close();
    section.NewLine();
  }
  return section.whole();
}

}  // namespace

std::string ReportHtml(const RunData& run, const Verdict& verdict) {
  Markup body;
  AddHead(run, verdict, &body);
  body.Open("main").NewLine();
  AddSection("Latency over time", TimelineFigures(run), &body);
  AddSection("Latency by percentile", PercentileFigure(run) + LatencyTable(run), &body);
  AddSection("How requests ended", Outcomes(run), &body);
  AddSection("Where the time went", ServerStages(run), &body);
  AddSection("Were the answers right?", VerificationTable(run), &body);
  AddSection("Could the client keep up?", ClientTable(run), &body);
  AddSection("Findings",
             FindingsTable("Objectives", verdict.objectives, "met", "missed") +
                 FindingsTable("Rules of validity", verdict.validity, "passed", "failed"),
             &body);
  AddSection("Setting", Setting(run), &body);
  body.Close().NewLine();
  body.Put("footer", "Written by castor-load " + run.client_version + ".").NewLine();
  return Page("Load test, " + run.begun, body.whole(), ChartData(run));
}

}  // namespace castor::load
