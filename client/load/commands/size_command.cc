#include <cmath>
#include <memory>
#include <stdexcept>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/load/commands/command.h"
#include "client/load/commands/output_flags.h"
#include "client/load/measure/run_json.h"
#include "client/load/search/sweep.h"
#include "client/load/sizing/size.h"
#include "client/load/workload/objective.h"

namespace castor::load {
namespace {

struct SizeFlags {
  std::string sweep, series, json;
  std::vector<std::string> objectives;
  SizeRequest request;
};

std::string NameOf(const Labels& series) {
  std::string name;
  for (const auto& [parameter, value] : series) {
    name += (name.empty() ? "" : ",") + parameter + "=" + value;
  }
  return name;
}

// The cells of one series, all classes and endpoints together, in rising order of rate.
std::vector<MeasuredCell> CellsOf(const Sweep& sweep, const std::string& wanted) {
  std::vector<std::string> names;
  std::vector<MeasuredCell> cells;
  for (const SweepCell& cell : sweep.cells) {
    const std::string name = NameOf(cell.series);
    if (names.empty() || names.back() != name) names.push_back(name);
    if (cell.state != CellState::kDone || (!wanted.empty() && name != wanted)) continue;
    const RunData run = FromJson(cell.run);
    const Cell total = run.Total();
    cells.push_back({.rate = static_cast<double>(total.counted()) / run.asked_seconds,
                     .throughput = static_cast<double>(total.of(Outcome::kOk)) / run.asked_seconds,
                     .error_share = total.error_share(),
                     .latency = total.intended});
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : "; ") + name;
  if (wanted.empty() && names.size() > 1) {
    throw cli::UsageError("the sweep has several series: choose one with --series. " + list);
  }
  if (cells.empty()) {
    throw cli::UsageError(wanted.empty()
                              ? "the sweep has no cell that was run"
                              : "no series '" + wanted + "' was run. There are: " + list);
  }
  return cells;
}

std::string Time(int64_t ns) { return cli::FormatMicroseconds(static_cast<double>(ns) / 1000); }

std::string ModelText(const ReplicaModel& model) {
  std::vector<std::vector<std::string>> table = {
      {"requests/s", "measured p50", "model's", "measured p99", "model's"}};
  for (const FittedPoint& point : model.points) {
    table.push_back({cli::FormatReal(point.rate, "%.4g"), Time(point.measured_p50_ns),
                     Time(point.modelled_p50_ns), Time(point.measured_p99_ns),
                     Time(point.modelled_p99_ns)});
  }
  std::string text = "One replica answers " + cli::FormatReal(model.capacity, "%.4g") +
                     " requests/s at most. The model's p99 is within " +
                     cli::FormatReal(100 * (std::exp(model.error) - 1), "%.0f") +
                     " % of what the sweep measured:\n\n" + cli::FormatTable(table);
  for (const std::string& warning : model.warnings) text += "warning: " + warning + "\n";
  return text;
}

std::string AnswerText(const std::vector<SizeAnswer>& answers, const SizeRequest& request) {
  std::vector<std::vector<std::string>> table = {
      {"balancing", "replicas", "from", "to", "load", "p99 or goal", "with one lost"}};
  for (const SizeAnswer& answer : answers) {
    const auto latency = [](const SizePoint& point) {
      return point.latency_ns.empty() ? std::string("-") : Time(point.latency_ns.front());
    };
    table.push_back({NameOf(answer.balancing), std::to_string(answer.replicas),
                     std::to_string(answer.least),
                     answer.greatest == 0 ? "?" : std::to_string(answer.greatest),
                     cli::FormatReal(100 * answer.with_all.utilization, "%.0f") + " %",
                     latency(answer.with_all), latency(answer.with_one_lost)});
  }
  return "For " + cli::FormatReal(request.rate, "%.6g") + " requests/s:\n\n" +
         cli::FormatTable(table);
}

int Size(const SizeFlags& flags) {
  Objective objective;
  for (const std::string& goal : flags.objectives) {
    try {
      AddGoal(goal, &objective);
    } catch (const std::invalid_argument& error) {
      throw cli::UsageError("--objective: " + std::string(error.what()));
    }
  }
  if (objective.max_error_share) throw cli::UsageError("--objective: a latency is needed here");
  SizeRequest request = flags.request;
  request.goals = objective.latencies;
  const ReplicaModel model = FitReplica(CellsOf(LoadSweep(flags.sweep), flags.series));
  const std::vector<SizeAnswer> answers = SizeFor(model, request);
  if (!flags.json.empty()) {
    nlohmann::ordered_json json = {{"model", ToJson(model)}};
    for (const SizeAnswer& answer : answers) json["answers"].push_back(ToJson(answer, request));
    WriteFileAtomically(flags.json, json.dump(2) + "\n");
  }
  return cli::WriteText(ModelText(model) + "\n" + AnswerText(answers, request));
}

}  // namespace

Runner AddSizeCommand(CLI::App* command) {
  auto flags = std::make_shared<SizeFlags>();
  command->add_option("SWEEP", flags->sweep, "What 'castor-load sweep --vary rate=...' wrote")
      ->type_name("FILE")
      ->required();
  command->add_option("-r,--rate", flags->request.rate, "Requests per second, of all callers")
      ->type_name("X")
      ->transform(cli::Number(0.001, 1e9))
      ->required();
  command
      ->add_option("--objective", flags->objectives,
                   "What must be reached: 'p99 <= 50ms'; repeatable")
      ->type_name("GOAL")
      ->allow_extra_args(false)
      ->required();
  command->add_option("--series", flags->series, "Of a sweep of several: 'kernel=clustered'")
      ->type_name("NAME=V,...");
  command->add_option("--callers", flags->request.callers, "That balance by themselves")
      ->type_name("N")
      ->transform(cli::Number(1, 10000))
      ->capture_default_str();
  command
      ->add_option("--burstiness", flags->request.burstiness,
                   "Coefficient of variation of the gaps between requests; 1: Poisson")
      ->type_name("X")
      ->transform(cli::Number(0.0, 20.0))
      ->capture_default_str();
  command->add_option("--json", flags->json, "Write the answer and its curve")
      ->type_name("FILE")
      ->check(cli::FileName());
  command->footer("deploy/SCALING.md shows how to plan with it.");
  return [=] { return Size(*flags); };
}

}  // namespace castor::load
