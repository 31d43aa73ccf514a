#include "tests/unit/load/md1.h"

#include <algorithm>
#include <cmath>

namespace castor::load::testing {

double Md1WaitAtMost(double t, double rho) {
  if (t < 0) return 0;
  long double sum = 0;
  for (int j = 0; j <= static_cast<int>(std::floor(t)); ++j) {
    const long double x = rho * (static_cast<long double>(t) - j);
    const long double size =
        x > 0 ? std::exp(j * std::log(x) - std::lgamma(j + 1.0L) + x) : (j == 0 ? 1.0L : 0.0L);
    sum += j % 2 == 0 ? size : -size;
  }
  return static_cast<double>((1 - rho) * sum);
}

double Md1RateFor(double service, double quantile, double limit) {
  double low = 0;
  double high = 1;
  for (int i = 0; i < 60; ++i) {
    const double rho = (low + high) / 2;
    (Md1WaitAtMost(limit / service - 1, rho) >= quantile ? low : high) = rho;
  }
  return low / service;
}

RunData Md1Server::Run(double rate, std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  RunData run;
  run.classes = {"only"};
  run.objectives = {{.latencies = {goal_}, .max_error_share = {}}};
  run.endpoints = {"simulated"};
  run.asked_seconds = seconds;
  run.asked_rate = rate;
  run.cells.assign(1, std::vector<Cell>(1));
  run.seconds.assign(static_cast<size_t>(std::ceil(seconds)), std::vector<Second>(1));
  Cell& cell = run.cells[0][0];
  std::exponential_distribution<double> gap(rate);
  double wait = 0;
  double last_service = 0;
  // A tenth more comes before the begin.
  double now = -seconds / 10;
  for (;;) {
    const double since = gap(random_);
    now += since;
    if (now >= seconds) break;
    wait = std::max(0.0, wait + last_service - since);
    last_service = service_ * slowness();
    if (now < 0) continue;
    const auto latency = static_cast<int64_t>((wait + last_service) * 1e9);
    cell.intended.Record(latency);
    ++cell.outcomes[static_cast<size_t>(Outcome::kOk)];
    if (latency <= goal_.limit.count()) ++cell.good;
    Second& second = run.seconds[static_cast<size_t>(now)][0];
    second.intended.Record(latency);
    ++second.outcomes[static_cast<size_t>(Outcome::kOk)];
  }
  cell.above_goal = {cell.planned() - cell.good};
  if (change) change(run);
  return run;
}

Verdict JudgeByCounts(const RunData& run) {
  Verdict verdict;
  for (size_t cls = 0; cls < run.objectives.size(); ++cls) {
    const Cell cell = run.OfClass(cls);
    const LatencyGoal& goal = run.objectives[cls].latencies.at(0);
    const auto counted = static_cast<double>(cell.counted());
    const double allowed = (1 - goal.quantile) * counted;
    verdict.validity.push_back({"early-stopping", allowed >= 10, "at least ten beyond"});
    verdict.objectives.push_back(
        {"latency", static_cast<double>(cell.above_goal.at(0)) <= allowed, "the limit"});
  }
  return verdict;
}

}  // namespace castor::load::testing
