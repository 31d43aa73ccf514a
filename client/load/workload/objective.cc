#include "client/load/workload/objective.h"

#include <algorithm>
#include <stdexcept>

#include "client/load/workload/units.h"

namespace castor::load {
namespace {

std::string_view Trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

[[noreturn]] void Refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument("'" + std::string(text) + "' " + why +
                              "; write it as \"p99 <= 50ms\" or \"errors <= 0.1%\"");
}

}  // namespace

void AddGoal(std::string_view text, Objective* objective) {
  constexpr std::string_view kSign = "<=";
  const size_t sign = text.find(kSign);
  if (sign == std::string_view::npos) Refuse(text, "is no objective");
  const std::string_view of = Trim(text.substr(0, sign));
  const std::string_view limit = Trim(text.substr(sign + kSign.size()));
  if (of == "errors") {
    if (objective->max_error_share) Refuse(text, "is a second objective for errors");
    objective->max_error_share = ParsePercent(limit);
    if (!objective->max_error_share) Refuse(text, "needs a share from 0% to 100% after <=");
    return;
  }
  if (!of.starts_with('p')) Refuse(text, "is neither of a percentile nor of errors");
  const auto quantile = ParsePercent(std::string(of.substr(1)) + "%");
  if (!quantile || *quantile <= 0 || *quantile >= 1) {
    Refuse(text, "needs a percentile above p0 and below p100");
  }
  const auto duration = ParseDuration(limit);
  if (!duration || duration->count() == 0) Refuse(text, "needs a duration such as 50ms after <=");
  if (std::any_of(objective->latencies.begin(), objective->latencies.end(),
                  [&](const LatencyGoal& goal) { return goal.quantile == *quantile; })) {
    Refuse(text, "is a second objective for the same percentile");
  }
  objective->latencies.push_back({.quantile = *quantile, .limit = *duration});
}

std::vector<std::string> GoalsOf(const Objective& objective) {
  std::vector<std::string> goals;
  for (const LatencyGoal& goal : objective.latencies) {
    goals.push_back(QuantileName(goal.quantile) + " <= " + FormatDuration(goal.limit));
  }
  if (objective.max_error_share) {
    goals.push_back("errors <= " + FormatPercent(*objective.max_error_share) + "%");
  }
  return goals;
}

std::string QuantileName(double quantile) { return "p" + FormatPercent(quantile); }

}  // namespace castor::load
