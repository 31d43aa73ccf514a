#include <filesystem>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/load/commands/command.h"
#include "client/load/judge/compare.h"
#include "client/load/judge/verdict.h"
#include "client/load/measure/run_json.h"
#include "client/load/output/compare_view.h"
#include "client/load/output/html.h"
#include "client/load/output/write_reports.h"

namespace castor::load {
namespace {

CompareRow RowOf(const ClassComparison& cls, const Change& change) {
  CompareRow row = {.cls = cls.name.empty() ? "total" : cls.name, .metric = change.metric};
  row.kind = change.quantile > 0          ? CompareRow::Kind::kDuration
             : change.metric == "goodput" ? CompareRow::Kind::kRate
                                          : CompareRow::Kind::kShare;
  row.a = change.a;
  row.b = change.b;
  row.change = change.change;
  row.low = change.interval.low;
  row.high = change.interval.high;
  if (change.trend == Trend::kRegression) row.judgement = CompareRow::Judgement::kWorse;
  if (change.trend == Trend::kImprovement) row.judgement = CompareRow::Judgement::kBetter;
  row.verdict = NameOf(change.trend);
  return row;
}

std::vector<std::string> WarningsOf(const std::string& name, const RunData& run) {
  std::vector<std::string> warnings;
  for (const Finding& finding : Judge(run).validity) {
    if (!finding.passed) warnings.push_back(name + " is INVALID: " + finding.text);
  }
  return warnings;
}

CompareView ViewOf(const Comparison& comparison, const std::string& name_a, const RunData& a,
                   const std::string& name_b, const RunData& b, double confidence) {
  CompareView view = {.name_a = name_a, .name_b = name_b, .confidence = confidence};
  view.warnings = comparison.notes;
  for (const auto& warnings : {WarningsOf(name_a, a), WarningsOf(name_b, b)}) {
    view.warnings.insert(view.warnings.end(), warnings.begin(), warnings.end());
  }
  for (const ClassComparison& cls : comparison.classes) {
    for (const Change& change : cls.changes) view.rows.push_back(RowOf(cls, change));
  }
  view.headline = NameOf(comparison.trend());
  view.headline[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(view.headline[0])));
  view.worse = comparison.trend() == Trend::kRegression;
  return view;
}

std::string ValueText(const CompareRow& row, double value) {
  switch (row.kind) {
    case CompareRow::Kind::kDuration:
      return cli::FormatMicroseconds(value / 1000);
    case CompareRow::Kind::kRate:
      return cli::FormatReal(value, "%.4g") + "/s";
    case CompareRow::Kind::kShare:
      return cli::FormatReal(100 * value) + " %";
  }
  return "";
}

std::string TextOf(const CompareView& view, const Comparison& comparison) {
  std::vector<std::vector<std::string>> table = {
      {"class", "figure", view.name_a, view.name_b, "change", "interval", ""}};
  const auto percent = [](double share) { return cli::FormatReal(100 * share, "%+.1f") + " %"; };
  for (const CompareRow& row : view.rows) {
    table.push_back({row.cls, row.metric, ValueText(row, row.a), ValueText(row, row.b),
                     percent(row.change), percent(row.low) + " to " + percent(row.high),
                     row.verdict});
  }
  std::string text = view.headline + "\n\n" + cli::FormatTable(table);
  for (const std::string& warning : view.warnings) text += "\n" + warning;
  if (!view.warnings.empty()) text += '\n';
  for (const GateResult& gate : comparison.gates) {
    text += "\n" + std::string(gate.failed ? "FAILED " : "passed ") + gate.gate + ": " + gate.text;
  }
  if (!comparison.gates.empty()) text += '\n';
  return text;
}

int CompareFiles(const std::string& file_a, const std::string& file_b,
                 const std::vector<std::string>& gates, double confidence,
                 const std::string& html) {
  CompareOptions options;
  options.confidence = confidence;
  for (const std::string& gate : gates) options.gates.push_back(ParseGate(gate));
  const RunData a = LoadRun(file_a), b = LoadRun(file_b);
  const Comparison comparison = Compare(a, b, options);
  const auto name = [](const std::string& file) {
    return std::filesystem::path(file).filename().string();
  };
  const CompareView view = ViewOf(comparison, name(file_a), a, name(file_b), b, confidence);
  const int written = cli::WriteText(TextOf(view, comparison));
  if (!html.empty()) WriteFileAtomically(html, CompareHtml(a, b, view));
  if (written != cli::kOk) return written;
  return comparison.failed() ? kRegression : kMet;
}

}  // namespace

Runner AddCompareCommand(CLI::App* command) {
  auto files = std::make_shared<std::pair<std::string, std::string>>();
  auto gates = std::make_shared<std::vector<std::string>>();
  auto confidence = std::make_shared<double>(CompareOptions().confidence);
  auto html = std::make_shared<std::string>();
  command->add_option("A", files->first, "The run before: what --json wrote")
      ->type_name("FILE")
      ->required();
  command->add_option("B", files->second, "The run after")->type_name("FILE")->required();
  command
      ->add_option("--fail-on", *gates,
                   "Exit with 5 if this holds for certain: 'p99 > +5%', 'short: errors > +0.1%', "
                   "'goodput < -2%'; repeatable")
      ->type_name("GATE")
      ->allow_extra_args(false);
  command->add_option("--confidence", *confidence, "Of each interval")
      ->type_name("X")
      ->transform(cli::Number(0.5, 0.9999))
      ->capture_default_str();
  command->add_option("--html", *html, "Write a report with both runs")
      ->type_name("FILE")
      ->check(cli::FileName());
  return [=] { return CompareFiles(files->first, files->second, *gates, *confidence, *html); };
}

}  // namespace castor::load
