#include <memory>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/load/commands/command.h"
#include "client/load/commands/output_flags.h"
#include "client/load/commands/session.h"
#include "client/load/commands/traffic_flags.h"
#include "client/load/output/summary.h"
#include "client/load/search/find_rate.h"
#include "client/load/workload/units.h"

namespace castor::load {
namespace {

struct SearchFlags {
  double start_rate = 10, greatest_rate = 1e6, tolerance = 0.02;
  std::string probe = "15s", confirmation = "60s", max_time = "1h";
};

std::chrono::nanoseconds Time(const std::string& flag, const std::string& text) {
  const auto time = ParseDuration(text);
  if (!time || time->count() <= 0) {
    throw cli::UsageError(flag + ": '" + text + "' is no duration, such as 15s");
  }
  return *time;
}

std::string Row(const Probe& probe) {
  return cli::FormatReal(probe.rate, "%9.4g") + "/s  " + std::string(NameOf(probe.result)) +
         "  p50 " + cli::FormatMicroseconds(static_cast<double>(probe.p50_ns) / 1000) + ", p99 " +
         cli::FormatMicroseconds(static_cast<double>(probe.p99_ns) / 1000) + ", goodput " +
         cli::FormatReal(probe.goodput, "%.4g") + "/s  (" + NameOf(probe.purpose) + ")";
}

int Search(const TrafficFlags& flags, const WorkerFlags& workers, const OutputFlags& output,
           const SearchFlags& search) {
  WatchForStop();
  const Workload workload = flags.MakeWorkload();
  const auto* open = std::get_if<OpenLoop>(&workload.load);
  if (open == nullptr)
    throw cli::UsageError("find-rate needs an open loop: constant, poisson, gamma");
  bool goals = false;
  for (const ClassSpec& spec : workload.classes) goals = goals || !spec.objective.empty();
  if (!goals) throw cli::UsageError("no class has an objective: give --objective 'p99 <= 50ms'");
  const SearchOptions options = {.start_rate = search.start_rate,
                                 .greatest_rate = search.greatest_rate,
                                 .tolerance = search.tolerance,
                                 .probe = Time("--probe", search.probe),
                                 .confirmation = Time("--confirmation", search.confirmation),
                                 .max_time = Time("--max-time", search.max_time)};
  Session session(flags, workload, workers, output.quiet);
  uint64_t seed = workload.seed;
  const RunAt run_at = [&](double rate, std::chrono::nanoseconds duration) {
    OpenLoop load = *open;
    load.rate = FlatRate{rate};
    return session.Run(load, duration, workload.warm_up, seed++);
  };
  const OnSearchStep on_step = [](const SearchStep& step) {
    if (step.done != nullptr) Say(Row(*step.done));
  };
  const FoundRate found = FindRate(
      run_at, [&](const RunData& run) { return session.Judge(run); }, options, on_step,
      StopRequested());
  std::string text = found.text + "\n";
  if (found.run) {
    const Verdict verdict = session.Judge(*found.run);
    text += "\nThe run that confirms it:\n\n" + SummaryText(*found.run, verdict);
    output.Write(*found.run, verdict);
  }
  const int written = cli::WriteText(text);
  if (written != cli::kOk) return written;
  switch (found.end) {
    case SearchEnd::kFound:
    case SearchEnd::kMetAtGreatest:
      return kMet;
    case SearchEnd::kClientLimit:
    case SearchEnd::kInvalid:
      return kInvalid;
    case SearchEnd::kStopped:
      return kInterrupted;
    default:
      return kMissed;
  }
}

}  // namespace

Runner AddFindRateCommand(CLI::App* command) {
  auto flags = std::make_shared<TrafficFlags>();
  auto workers = std::make_shared<WorkerFlags>();
  auto output = std::make_shared<OutputFlags>();
  auto search = std::make_shared<SearchFlags>();
  AddTrafficFlags(command, flags.get(), /*searching=*/true);
  const std::string group = "Search";
  const auto rate = [&](const char* name, double* value, const char* help) {
    command->add_option(name, *value, help)
        ->type_name("X")
        ->transform(cli::Number(0.01, 1e7))
        ->capture_default_str()
        ->group(group);
  };
  const auto time = [&](const char* name, std::string* value, const char* help) {
    command->add_option(name, *value, help)->type_name("TIME")->capture_default_str()->group(group);
  };
  rate("--start-rate", &search->start_rate, "First rate; near the answer saves runs");
  rate("--greatest-rate", &search->greatest_rate, "Last rate");
  command->add_option("--tolerance", search->tolerance, "How close the answer's interval is")
      ->type_name("X")
      ->transform(cli::Number(0.001, 1.0))
      ->capture_default_str()
      ->group(group);
  time("--probe", &search->probe, "Length of a run of the search");
  time("--confirmation", &search->confirmation, "Length of the run at the answer");
  time("--max-time", &search->max_time, "Sum of all runs at most");
  AddWorkerFlags(command, workers.get());
  AddOutputFlags(command, output.get());
  command->footer(
      "Doubles the rate until an objective is missed, bisects, and confirms the answer by a "
      "longer\n"
      "run. Exit codes: 0 found, 3 no rate meets the objectives, 4 the client was the limit.");
  return [=] { return Search(*flags, *workers, *output, *search); };
}

}  // namespace castor::load
