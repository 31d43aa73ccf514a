// Whether a class met its objective.

#include <cmath>
#include <optional>

#include "client/cli/report.h"
#include "client/load/judge/rules.h"
#include "client/load/statistics/early_stopping.h"

namespace castor::load {
namespace {

// How many times longer a run would have to be that shows the goal as met, if the share above the
// limit stays what it was; nullopt: more than a thousand times.
std::optional<double> LongerBy(double quantile, int64_t requests, int64_t above,
                               double confidence) {
  for (double factor = 1.1; factor < 1000; factor *= 1.1) {
    const double longer = std::ceil(factor * static_cast<double>(requests));
    const double more = std::ceil(factor * static_cast<double>(above));
    if (ConfidenceWithin(quantile, static_cast<int64_t>(longer), static_cast<int64_t>(more)) >=
        confidence) {
      return factor;
    }
  }
  return std::nullopt;
}

Finding CheckLatency(const RunData& run, size_t cls, const Cell& cell, size_t index,
                     const Rules& rules) {
  const LatencyGoal& goal = run.objectives[cls].latencies[index];
  const std::string name = "p" + cli::FormatReal(100 * goal.quantile, "%.6g");
  const std::string limit = FoundTime(static_cast<double>(goal.limit.count()));
  Finding finding;
  finding.rule = run.classes[cls] + ": " + name + " <= " + limit;
  const int64_t requests = cell.counted();
  const int64_t above = index < cell.above_goal.size() ? cell.above_goal[index] : 0;
  if (requests == 0) {
    finding.passed = false;
    finding.text = "no request of this class was sent: run for longer, or raise its weight";
    return finding;
  }
  const double confidence = ConfidenceWithin(goal.quantile, requests, above);
  const double share = static_cast<double>(above) / static_cast<double>(requests);
  finding.passed = confidence >= rules.confidence;
  finding.text = std::to_string(above) + " of " + std::to_string(requests) + " requests (" +
                 FoundShare(share) + ") took longer than " + limit + " or got no OK answer";
  if (finding.passed) return finding;
  if (share > 1 - goal.quantile) {
    finding.text += ", and " + FoundShare(1 - goal.quantile) + " may";
    return finding;
  }
  finding.text += ": too few to be " + FoundShare(rules.confidence) + " sure of " + name;
  if (const auto factor = LongerBy(goal.quantile, requests, above, rules.confidence)) {
    finding.text += "; run for at least " +
                    cli::FormatReal(std::ceil(*factor * run.MeasuredSeconds()), "%.0f s");
  } else {
    finding.text += "; the class is too near its limit for any run to tell";
  }
  return finding;
}

}  // namespace

std::vector<Finding> CheckObjective(const RunData& run, size_t cls, const Rules& rules) {
  const Objective& objective = run.objectives[cls];
  if (objective.empty()) return {};
  const Cell cell = run.OfClass(cls);
  std::vector<Finding> findings;
  for (size_t i = 0; i < objective.latencies.size(); ++i) {
    findings.push_back(CheckLatency(run, cls, cell, i, rules));
  }
  if (objective.max_error_share) {
    const int64_t errors = cell.counted() - cell.of(Outcome::kOk);
    const std::string most = FoundShare(*objective.max_error_share);
    findings.push_back({run.classes[cls] + ": errors <= " + most,
                        cell.counted() > 0 && cell.error_share() <= *objective.max_error_share,
                        std::to_string(errors) + " of " + std::to_string(cell.counted()) +
                            " requests (" + FoundShare(cell.error_share()) +
                            ") got no OK answer, and " + most + " may"});
  }
  return findings;
}

}  // namespace castor::load
