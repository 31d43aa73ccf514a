// The subcommands that send: run, find-rate and sweep.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/screen.h"
#include "client/cli/values.h"
#include "client/file.h"
#include "client/load/commands/command.h"
#include "client/load/report/report.h"
#include "client/load/results/run_json.h"
#include "client/load/results/statistics.h"
#include "client/load/search/find_rate.h"
#include "client/load/search/sweep.h"
#include "client/load/send/driver.h"

namespace castor::load {
namespace {

constexpr int kSecondsBetweenLines = 10;  // where there is no terminal

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may set it

// Stops the run; the second signal ends the program at once.
void OnSignal(int number) {
  if (stop_requested.exchange(true)) std::_Exit(128 + number);
}

void WatchForStop() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// Prints a line on standard error.
void PrintStatus(const std::string& line) {
  std::fprintf(stderr, "%s\n", cli::CleanText(line).c_str());
}

// Shows a run's progress: on a terminal as one line that is replaced each second, elsewhere as a
// line every 10 s.
class LiveLine {
 public:
  explicit LiveLine(bool quiet) : quiet_(quiet) {}

  void Show(const Progress& progress) {
    if (quiet_ || (!line_.on() && shown_++ % kSecondsBetweenLines != 0)) return;
    const Second& last = progress.last;
    int64_t others = 0;
    for (size_t i = 1; i < last.outcomes.size(); ++i) others += last.outcomes[i];
    std::string text = std::string(progress.phase) + " " + cli::ClockText(progress.elapsed_seconds);
    if (progress.total_seconds > 0) text += " of " + cli::ClockText(progress.total_seconds);
    text += ": " + cli::CountText(last.outcomes[0]) + " OK/s, " + cli::CountText(others) +
            " not OK, p50 " + cli::TimeText(static_cast<double>(last.intended.ValueAt(0.5))) +
            ", p99 " + cli::TimeText(static_cast<double>(last.intended.ValueAt(0.99))) + ", " +
            cli::CountText(progress.in_flight) + " in flight, client " +
            PercentText(progress.cpu_share, 1) + " of a core";
    if (line_.on()) {
      line_.Show(text);
    } else {
      PrintStatus(text);
    }
  }

  void End() { line_.Clear(); }

 private:
  const bool quiet_;
  cli::StatusLine line_;
  int64_t shown_ = 0;
};

// Runs one after another, with the same classes and servers.
class Session {
 public:
  // Builds the requests and connects. Throws what Driver::Prepare throws.
  Session(const TrafficFlags& flags, const Workload& workload, bool quiet)
      : text_(flags.WorkloadText()), driver_(workload, flags.MakeDriveOptions()), line_(quiet) {
    driver_.Prepare();
  }

  RunData Run(const Load& load, std::chrono::nanoseconds duration, std::chrono::nanoseconds warm_up,
              uint64_t seed) {
    RunData run = driver_.Run(
        load, duration, warm_up, seed, [this](const Progress& progress) { line_.Show(progress); },
        stop_requested);
    line_.End();
    run.workload = text_;
    return run;
  }
  RunData Run() {
    const Workload& workload = driver_.workload();
    return Run(workload.load, workload.duration, workload.warm_up, workload.seed);
  }

 private:
  const std::string text_;
  Driver driver_;
  LiveLine line_;
};

void AddQuietFlag(CLI::App* command, bool* quiet) {
  command->add_flag("-q,--quiet", *quiet, "Do not show progress")->group("Results");
}

int RunOnce(const TrafficFlags& flags, const OutputFlags& output, bool quiet) {
  WatchForStop();
  const RunData run = Session(flags, flags.MakeWorkload(), quiet).Run();
  const Verdict verdict = Judge(run, flags.rules);
  const int written = cli::WriteText(SummaryText(run, verdict));
  output.Write(run, verdict);
  if (stop_requested) return kInterrupted;
  if (written != cli::kOk) return written;
  if (!verdict.valid()) return kInvalid;
  return verdict.met() ? kMet : kMissed;
}

// ---- find-rate

struct SearchFlags {
  double start_rate = 10, greatest_rate = 1e6, tolerance = 0.02;
  double probe = 15, confirmation = 60, max_time = 3600;  // seconds
};

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

void PrintProbe(const Probe& probe) {
  std::string result = NameOf(probe.result);
  if (probe.retry_duration.count() > 0) {
    result += ", again for " + cli::FormatReal(InSeconds(probe.retry_duration), "%.4g s");
  }
  PrintStatus(cli::FormatReal(probe.rate, "%9.4g") + "/s  " + result + "  p50 " +
              cli::TimeText(static_cast<double>(probe.p50_ns)) + ", p99 " +
              cli::TimeText(static_cast<double>(probe.p99_ns)) + ", goodput " +
              cli::FormatReal(probe.goodput, "%.4g") + "/s" +
              (probe.confirms ? "  (confirmation)" : ""));
  if (probe.result == ProbeResult::kMet) return;
  for (const Finding& finding : probe.failed) {
    PrintStatus("    " + finding.rule + ": " + finding.text);
  }
}

int RunSearch(const TrafficFlags& flags, const OutputFlags& output, const SearchFlags& search,
              bool quiet) {
  WatchForStop();
  const Workload workload = flags.MakeWorkload();
  const auto* open = std::get_if<OpenLoop>(&workload.load);
  if (open == nullptr) throw cli::UsageError("find-rate needs an open loop: poisson or constant");
  bool goals = false;
  for (const ClassSpec& spec : workload.classes) goals = goals || !spec.objective.empty();
  if (!goals) throw cli::UsageError("no class has an objective, such as --objective 'p99 <= 50ms'");
  const Rules& rules = flags.rules;
  double weights = 0, requests = 0;
  for (const ClassSpec& spec : workload.classes) weights += spec.weight;
  for (const ClassSpec& spec : workload.classes) {
    for (const LatencyGoal& goal : spec.objective.latencies) {
      const auto needed = static_cast<double>(RequestsNeeded(goal.quantile, rules.confidence));
      const double share = spec.weight / weights * std::max(1 - spec.cancel_share, 1e-3);
      requests = std::max(requests, needed / share);
    }
  }
  if (requests == 0) requests = static_cast<double>(RequestsNeeded(0.99, rules.confidence));
  const SearchOptions options = {.start_rate = search.start_rate,
                                 .greatest_rate = search.greatest_rate,
                                 .tolerance = search.tolerance,
                                 .requests = requests,
                                 .warm_up = workload.warm_up,
                                 .probe = Seconds(search.probe),
                                 .confirmation = Seconds(search.confirmation),
                                 .max_time = Seconds(search.max_time)};
  Session session(flags, workload, quiet);
  uint64_t seed = workload.seed;
  const RunAt run_at = [&](double rate, std::chrono::nanoseconds duration) {
    OpenLoop load = *open;
    load.rate = rate;
    return session.Run(load, duration, workload.warm_up, seed++);
  };
  PrintStatus("expected to take " + cli::ClockText(InSeconds(ExpectedTime(options))) +
              ", longer if the answer is far from --start-rate; at most " +
              cli::ClockText(InSeconds(options.max_time)) + " without warm-ups (--max-time)");
  const FoundRate found = FindRate(
      run_at, [&](const RunData& run) { return Judge(run, rules); }, options, PrintProbe,
      stop_requested);
  std::string text = found.text + "\n";
  if (found.run) {
    const Verdict verdict = Judge(*found.run, rules);
    text += "\nThe last longer run:\n\n" + SummaryText(*found.run, verdict);
    output.Write(*found.run, verdict);
  }
  const int written = cli::WriteText(text);
  if (written != cli::kOk) return written;
  return found.exit_code;
}

// ---- sweep

std::string TextOf(const SweepCell& cell) {
  std::string text;
  for (const auto& [name, value] : cell.parameters) {
    text += (text.empty() ? "" : " ") + name + "=" + value;
  }
  return text;
}

// A warning if the cell's p99 rests on too few requests; else "".
std::string FewRequests(const SweepCell& cell) {
  const int64_t ok = cell.summary["total"]["outcomes"]["ok"];
  return ok < RequestsNeeded(0.99, Rules().confidence)
             ? "p99 of only " + std::to_string(ok) + " requests"
             : "";
}

std::string TableOf(const std::vector<SweepCell>& cells) {
  std::vector<std::vector<std::string>> table = {
      {"parameters", "sent/s", "OK/s", "good/s", "p50", "p99", "errors", ""}};
  for (const SweepCell& cell : cells) {
    if (cell.summary.is_null()) continue;
    const auto& total = cell.summary["total"];
    std::vector<std::string> row = {TextOf(cell)};
    for (const char* key : {"rate", "ok_rate", "goodput"}) {
      row.push_back(cli::FormatReal(total[key], "%.4g"));
    }
    for (const char* key : {"p50_ms", "p99_ms"}) {
      row.push_back(cli::TimeText(1e6 * total["intended"][key].get<double>()));
    }
    row.push_back(PercentText(total["error_share"], 1));
    row.push_back(cell.fault.empty() ? FewRequests(cell) : "INVALID");
    table.push_back(std::move(row));
  }
  return cli::FormatTable(table);
}

nlohmann::json ToJson(const std::vector<SweepCell>& cells) {
  nlohmann::json json = {{"format", "castor-load sweep"}, {"version", 2}};
  for (const SweepCell& cell : cells) {
    if (cell.summary.is_null()) continue;
    nlohmann::json parameters = nlohmann::json::object();
    for (const auto& [name, value] : cell.parameters) parameters[name] = value;
    json["cells"].push_back({{"parameters", std::move(parameters)},
                             {"fault", cell.fault},
                             {"few_requests", !FewRequests(cell).empty()},
                             {"summary", cell.summary}});
  }
  return json;
}

int RunSweep(const TrafficFlags& flags, const std::vector<std::string>& vary,
             const std::string& file, bool quiet) {
  WatchForStop();
  std::vector<SweepCell> cells =
      MakeSweep(flags.Toml(), vary, [&](const toml::table& toml) { return flags.Read(toml); });
  bool any_valid = false;
  for (SweepCell& cell : cells) {
    // Requests differ from cell to cell, so each has a session of its own.
    const RunData run = Session(flags, cell.workload, quiet).Run();
    if (stop_requested) break;
    cell.summary = SummaryOf(run);
    cell.fault = ClientFault(Judge(run, flags.rules));
    any_valid = any_valid || cell.fault.empty();
    PrintStatus(TextOf(cell) + (cell.fault.empty() ? "" : ": " + cell.fault));
    if (file.empty()) continue;
    const absl::Status written = client::WriteFile(file, {ToJson(cells).dump(1), "\n"});
    if (!written.ok()) throw std::runtime_error(std::string(written.message()));
  }
  const int written = cli::WriteText(TableOf(cells));
  if (written != cli::kOk) return written;
  return stop_requested ? kInterrupted : any_valid ? kMet : kInvalid;
}

}  // namespace

Runner AddRunCommand(CLI::App* command) {
  auto flags = std::make_shared<TrafficFlags>();
  auto output = std::make_shared<OutputFlags>();
  auto quiet = std::make_shared<bool>(false);
  AddTrafficFlags(command, flags.get(), /*searching=*/false);
  AddOutputFlags(command, output.get());
  AddQuietFlag(command, quiet.get());
  return [=] { return RunOnce(*flags, *output, *quiet); };
}

Runner AddFindRateCommand(CLI::App* command) {
  auto flags = std::make_shared<TrafficFlags>();
  auto output = std::make_shared<OutputFlags>();
  auto search = std::make_shared<SearchFlags>();
  auto quiet = std::make_shared<bool>(false);
  AddTrafficFlags(command, flags.get(), /*searching=*/true);
  const std::string group = "Search";
  const auto number = [&](const char* name, double* value, double least, double most,
                          const char* help) {
    cli::AddOption(command, group, name, value, "X", help, cli::Number(least, most))
        ->capture_default_str();
  };
  const auto time = [&](const char* name, double* seconds, const char* help) {
    cli::AddOption(command, group, name, seconds, "TIME", help, cli::Seconds(0.001, 7 * 86400))
        ->capture_default_str();
  };
  number("--start-rate", &search->start_rate, 0.01, 1e7,
         "First rate to try; a good guess saves runs");
  number("--greatest-rate", &search->greatest_rate, 0.01, 1e7, "Last rate");
  number("--tolerance", &search->tolerance, 0.001, 0.99, "Width of the final interval, relative");
  time("--probe", &search->probe, "Length of each run of the search");
  time("--confirmation", &search->confirmation, "Length of the confirming run");
  time("--max-time", &search->max_time, "Maximum total length of all runs");
  AddOutputFlags(command, output.get());
  AddQuietFlag(command, quiet.get());
  command->footer(
      "Doubles the rate until an objective is missed, bisects, and confirms the answer by a "
      "longer\n"
      "run. Exit codes: 0 found, 3 no rate meets the objectives, 4 the client was the limit.");
  return [=] { return RunSearch(*flags, *output, *search, *quiet); };
}

Runner AddSweepCommand(CLI::App* command) {
  auto flags = std::make_shared<TrafficFlags>();
  auto vary = std::make_shared<std::vector<std::string>>();
  auto file = std::make_shared<std::string>();
  auto quiet = std::make_shared<bool>(false);
  AddTrafficFlags(command, flags.get(), /*searching=*/false);
  command
      ->add_option("--vary", *vary,
                   "rate, callers, length, sequences, heads, head-dim, or a kernel's flag without "
                   "its dashes; repeatable: all combinations are run")
      ->type_name("NAME=V,V,...")
      ->allow_extra_args(false)
      ->required()
      ->group("Sweep");
  cli::AddOption(command, "Sweep", "--json", file.get(), "FILE",
                 "Write the cells' figures to this file after each cell", cli::FileName());
  AddQuietFlag(command, quiet.get());
  return [=] { return RunSweep(*flags, *vary, *file, *quiet); };
}

}  // namespace castor::load
