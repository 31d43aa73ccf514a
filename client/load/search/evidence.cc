#include "client/load/search/evidence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace castor::load {
namespace {

constexpr size_t kStretches = 20;  // of a run; each must be longer than queues live

// What both a class's cell and its second count.
struct Counts {
  const std::array<int64_t, kOutcomes>& outcomes;
  const Histogram& intended;

  int64_t of(Outcome outcome) const { return outcomes[static_cast<size_t>(outcome)]; }
  int64_t total() const {
    return std::accumulate(outcomes.begin(), outcomes.end(), int64_t{0}) - of(Outcome::kCancelled);
  }
  int64_t errors() const { return total() - of(Outcome::kOk); }
};

// Requests that missed the goal; a class's error share when `goal` is null.
int64_t Missed(const Counts& counts, const LatencyGoal* goal) {
  return counts.errors() + (goal == nullptr ? 0 : counts.intended.CountAbove(goal->limit.count()));
}

}  // namespace

void Evidence::Add(const RunData& run) {
  size_t index = 0;
  for (size_t cls = 0; cls < run.objectives.size(); ++cls) {
    const Objective& objective = run.objectives[cls];
    if (objective.empty()) continue;
    const Cell cell = run.OfClass(cls);
    const auto add = [&](const LatencyGoal* goal, double allowed) {
      if (index == goals_.size()) goals_.push_back({.allowed = allowed});
      Goal& sum = goals_[index++];
      const Counts counts{cell.outcomes, cell.intended};
      sum.missed += Missed(counts, goal);
      sum.total += counts.total();
      const size_t seconds = run.seconds.size();
      std::vector<std::pair<double, double>> stretches(std::min(seconds, kStretches));
      for (size_t i = 0; i < seconds; ++i) {
        if (cls >= run.seconds[i].size()) continue;
        const Second& second = run.seconds[i][cls];
        const Counts part{second.outcomes, second.intended};
        auto& [missed, total] = stretches[i * stretches.size() / seconds];
        missed += static_cast<double>(Missed(part, goal));
        total += static_cast<double>(part.total());
      }
      sum.stretches.insert(sum.stretches.end(), stretches.begin(), stretches.end());
    };
    for (const LatencyGoal& goal : objective.latencies) add(&goal, 1 - goal.quantile);
    if (objective.max_error_share) add(nullptr, *objective.max_error_share);
  }
}

double Evidence::Worst() const {
  double worst = 0;
  for (const Goal& goal : goals_) {
    if (goal.missed == 0) continue;
    const double share = static_cast<double>(goal.missed) / static_cast<double>(goal.total);
    worst = std::max(
        worst, goal.allowed > 0 ? share / goal.allowed : std::numeric_limits<double>::infinity());
  }
  return worst;
}

double Evidence::Sureness() const {
  double least = std::numeric_limits<double>::infinity();
  for (const Goal& goal : goals_) {
    const auto total = static_cast<double>(std::max<int64_t>(goal.total, 1));
    const double share = static_cast<double>(goal.missed) / total;
    // What independent requests would give, were they exactly at the edge ...
    const double allowed = std::max(goal.allowed, 1 / total);
    double variance = allowed * (1 - allowed) / total;
    // ... and what the stretches say of these: the ratio estimator's.
    const auto count = static_cast<double>(goal.stretches.size());
    if (count >= 5) {
      double squares = 0;
      for (const auto& [missed, of] : goal.stretches) {
        squares += (missed - share * of) * (missed - share * of);
      }
      variance = std::max(variance, squares * count / (count - 1) / (total * total));
    }
    least = std::min(least, (goal.allowed - share) / std::sqrt(variance));
  }
  return least;
}

}  // namespace castor::load
