#include <memory>
#include <stdexcept>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/load/commands/command.h"
#include "client/load/commands/output_flags.h"
#include "client/load/commands/session.h"
#include "client/load/commands/traffic_flags.h"
#include "client/load/search/sweep.h"
#include "client/load/workload/parse.h"

namespace castor::load {
namespace {

std::string LabelsOf(const SweepCell& cell) {
  std::string text;
  for (const auto& [name, value] : cell.series) text += name + " " + value + ", ";
  return text + (cell.load.empty() ? "" : cell.load);
}

std::string TableOf(const Sweep& sweep) {
  std::vector<std::vector<std::string>> table = {
      {"series", "rate", "answers/s", "goodput/s", "p50", "p99", "errors"}};
  const auto time = [](int64_t ns) {
    return cli::FormatMicroseconds(static_cast<double>(ns) / 1000);
  };
  for (const Curve& curve : CurvesOf(sweep)) {
    std::string series;
    for (const auto& [name, value] : curve.series) series += name + "=" + value + " ";
    for (const CurvePoint& point : curve.points) {
      table.push_back({series, cli::FormatReal(point.rate, "%.4g"),
                       cli::FormatReal(point.throughput, "%.4g"),
                       cli::FormatReal(point.goodput, "%.4g"), time(point.p50_ns),
                       time(point.p99_ns), cli::FormatReal(100 * point.error_share) + " %"});
    }
  }
  return cli::FormatTable(table);
}

int RunTheSweep(const TrafficFlags& flags, const WorkerFlags& workers,
                const std::vector<std::string>& vary, const std::string& file, bool resume,
                bool quiet) {
  WatchForStop();
  const Workload workload = flags.MakeWorkload();
  std::vector<Vary> varied;
  for (const std::string& text : vary) varied.push_back(ParseVary(text));
  Sweep sweep = MakeSweep(workload, ToToml(workload), varied);
  if (resume) sweep = ResumeSweep(file, sweep);
  // Requests differ from cell to cell, so each has a session of its own.
  const RunCell run = [&](const Workload& of_cell, const SweepCell& cell) {
    Say(LabelsOf(cell));
    return Session(flags, of_cell, workers, quiet).Run();
  };
  const OnCell on_cell = [](const Sweep&, const SweepCell& cell) {
    if (cell.state == CellState::kSkipped) Say(LabelsOf(cell) + ": skipped, " + cell.why);
    if (cell.state == CellState::kInvalid) Say(LabelsOf(cell) + ": INVALID, " + cell.why);
  };
  const bool whole = RunSweep(
      workload, run, [&](const RunData& data) { return Judge(data, flags.MakeRules()); }, file,
      &sweep, on_cell, StopRequested());
  const int written = cli::WriteText(TableOf(sweep));
  if (written != cli::kOk) return written;
  if (!whole) Say("stopped; go on with --resume");
  return whole ? kMet : kInterrupted;
}

}  // namespace

Runner AddSweepCommand(CLI::App* command) {
  auto flags = std::make_shared<TrafficFlags>();
  auto workers = std::make_shared<WorkerFlags>();
  auto vary = std::make_shared<std::vector<std::string>>();
  auto file = std::make_shared<std::string>();
  auto resume = std::make_shared<bool>(false);
  auto quiet = std::make_shared<bool>(false);
  AddTrafficFlags(command, flags.get(), /*searching=*/false);
  const std::string group = "Sweep";
  command->add_option("--vary", *vary, VaryHelp())
      ->type_name("NAME=V,V,...")
      ->allow_extra_args(false)
      ->required()
      ->group(group);
  command->add_option("--json", *file, "Where the sweep is kept, after each cell")
      ->type_name("FILE")
      ->check(cli::FileName())
      ->required()
      ->group(group);
  command->add_flag("--resume", *resume, "Go on with what that file holds")->group(group);
  command->add_flag("-q,--quiet", *quiet, "No live view")->group(group);
  AddWorkerFlags(command, workers.get());
  return [=] { return RunTheSweep(*flags, *workers, *vary, *file, *resume, *quiet); };
}

}  // namespace castor::load
