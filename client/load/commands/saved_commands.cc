// The subcommands that read saved runs: compare and report; and example.
#include <filesystem>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/load/commands/command.h"
#include "client/load/report/report.h"
#include "client/load/results/compare.h"
#include "client/load/results/run_json.h"
#include "client/load/workload/parse.h"

namespace castor::load {
namespace {

std::string ValueText(const Change& change, double value) {
  if (change.quantile > 0) return cli::TimeText(value);
  if (change.metric == "goodput") return cli::RateText(value) + "/s";
  return PercentText(value, 1);
}

std::string TextOf(const Comparison& comparison, const std::string& name_a,
                   const std::string& name_b, const std::vector<std::string>& warnings) {
  const auto percent = [](double share) { return cli::FormatReal(100 * share, "%+.1f") + " %"; };
  std::vector<std::vector<std::string>> table = {
      {"class", "figure", name_a, name_b, "change", "interval", ""}};
  for (const ClassComparison& cls : comparison.classes) {
    for (const Change& change : cls.changes) {
      table.push_back({cls.name.empty() ? "total" : cli::CleanText(cls.name), change.metric,
                       ValueText(change, change.a), ValueText(change, change.b),
                       percent(change.change),
                       percent(change.interval.low) + " to " + percent(change.interval.high),
                       NameOf(change.trend)});
    }
  }
  std::string text = std::string(NameOf(comparison.trend())) + "\n\n" + cli::FormatTable(table);
  for (const auto* notes : {&comparison.notes, &warnings}) {
    for (const std::string& note : *notes) text += "\n" + cli::CleanText(note) + "\n";
  }
  for (const GateResult& gate : comparison.gates) {
    const char* const end = gate.end == GateOutcome::kPassed   ? "passed "
                            : gate.end == GateOutcome::kFailed ? "FAILED "
                                                               : "UNKNOWN ";
    text += "\n" + std::string(end) + gate.gate + ": " + cli::CleanText(gate.text);
  }
  return text + (comparison.gates.empty() ? "" : "\n");
}

int CompareFiles(const std::string& file_a, const std::string& file_b,
                 const std::vector<std::string>& gates, double confidence) {
  std::vector<Gate> parsed;
  for (const std::string& gate : gates) parsed.push_back(ParseGate(gate));
  const RunData a = LoadRun(file_a), b = LoadRun(file_b);
  Comparison comparison = Compare(a, b, parsed, confidence);
  const auto name = [](const std::string& file) {
    return cli::FitText(std::filesystem::path(file).filename().string(), 24);
  };
  std::vector<std::string> warnings;
  for (const auto& [file, run] : {std::pair(&file_a, &a), {&file_b, &b}}) {
    for (const Finding& finding : Judge(*run).validity) {
      if (!finding.passed) warnings.push_back(name(*file) + " is INVALID: " + finding.text);
    }
  }
  if (!warnings.empty()) comparison.MarkUnclear();
  const int written = cli::WriteText(TextOf(comparison, name(file_a), name(file_b), warnings));
  if (written != cli::kOk) return written;
  if (comparison.Has(GateOutcome::kFailed)) return kRegression;
  return comparison.Has(GateOutcome::kUnknown) || !warnings.empty() ? kInvalid : kMet;
}

int Report(const std::vector<std::string>& files, const OutputFlags& output) {
  RunData run = LoadRun(files.front());
  for (size_t i = 1; i < files.size(); ++i) run.Merge(LoadRun(files[i]));
  const Verdict verdict = Judge(run);
  output.Write(run, verdict);
  const int written = cli::WriteText(SummaryText(run, verdict));
  if (written != cli::kOk) return written;
  if (!verdict.valid()) return kInvalid;
  return verdict.met() ? kMet : kMissed;
}

}  // namespace

Runner AddCompareCommand(CLI::App* command) {
  auto files = std::make_shared<std::pair<std::string, std::string>>();
  auto gates = std::make_shared<std::vector<std::string>>();
  auto confidence = std::make_shared<double>(kCompareConfidence);
  command->add_option("A", files->first, "The earlier run, written by --json")
      ->type_name("FILE")
      ->required();
  command->add_option("B", files->second, "The later run, written by --json")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--fail-on", *gates,
                   "Exit with 5 if this certainly holds, and with 4 if it cannot be decided: 'p99 "
                   "> +5%', 'short: errors > +0.1%', 'goodput < -2%'; repeatable")
      ->type_name("GATE")
      ->allow_extra_args(false);
  command->add_option("--confidence", *confidence, "Confidence of each interval")
      ->type_name("X")
      ->transform(cli::Number(0.5, 0.9999))
      ->capture_default_str();
  return [=] { return CompareFiles(files->first, files->second, *gates, *confidence); };
}

Runner AddReportCommand(CLI::App* command) {
  auto files = std::make_shared<std::vector<std::string>>();
  auto output = std::make_shared<OutputFlags>();
  command
      ->add_option("RUN", *files,
                   "File written by --json; several files are the shares (--share) of one plan")
      ->type_name("FILE...")
      ->required();
  AddOutputFlags(command, output.get());
  return [=] { return Report(*files, *output); };
}

Runner AddExampleCommand(CLI::App*) {
  return [] { return cli::WriteText(std::string(ExampleToml())); };
}

}  // namespace castor::load
