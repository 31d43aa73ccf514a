// Rules on the run as such: its length, its number of requests, and whether it was a steady state.

#include <cmath>
#include <functional>
#include <optional>

#include "client/cli/report.h"
#include "client/load/judge/rules.h"
#include "client/load/statistics/early_stopping.h"
#include "client/load/statistics/slope.h"

namespace castor::load {
namespace {

using cli::FormatReal;

std::string SecondsText(double seconds) { return FormatReal(seconds, "%.4g s"); }

// nullopt: enough.
std::optional<std::string> TooFew(const std::string& whose, int64_t requests, double quantile,
                                  double seconds, double confidence) {
  const int64_t needed = QueriesNeeded(quantile, 0, confidence);
  if (requests >= needed) return std::nullopt;
  std::string text = whose + " had " + std::to_string(requests) + " requests, and p" +
                     FormatReal(100 * quantile, "%g") + " at a confidence of " +
                     FoundShare(confidence) + " takes " + std::to_string(needed) + " or more";
  if (requests > 0 && seconds > 0) {
    const double ratio = static_cast<double>(needed) / static_cast<double>(requests);
    text += ": run for at least " + SecondsText(std::ceil(seconds * ratio));
  } else {
    text += ": run for longer";
  }
  return text;
}

// One figure of each whole second; nullopt where a second has none.
std::vector<double> SeriesOf(const RunData& run,
                             const std::function<std::optional<double>(const Second&)>& figure) {
  // The run may end within its last second, which then is like no other.
  const auto whole = static_cast<size_t>(std::floor(run.MeasuredSeconds()));
  std::vector<double> series;
  for (size_t i = 0; i < std::min(run.seconds.size(), whole); ++i) {
    if (const auto value = figure(run.OfSecond(i))) series.push_back(*value);
  }
  return series;
}

std::optional<double> Planned(const Second& second) {
  int64_t planned = 0;
  for (const int64_t count : second.outcomes) planned += count;
  return static_cast<double>(planned);
}

std::optional<double> InFlight(const Second& second) {
  return static_cast<double>(second.in_flight);
}

std::optional<double> Latency(const Second& second) {
  if (second.intended.empty()) return std::nullopt;
  return second.intended.mean();
}

std::optional<double> MaxLag(const Second& second) {
  return static_cast<double>(second.max_lag_ns);
}

// Whether the growth is more than chance, more than the share of the mean, and more than `least`,
// below which it matters to nobody.
bool Grew(const Growth& growth, double share, double least) {
  return growth.blocks > 0 && growth.at_least > share * growth.mean && growth.growth > least;
}

std::string GrowthText(const std::string& what, const Growth& growth,
                       const std::function<std::string(double)>& text, double confidence) {
  return what + " grew by " + text(growth.growth) + " over the run, about a mean of " +
         text(growth.mean) + " (by at least " + text(growth.at_least) + " at a confidence of " +
         FoundShare(confidence) + ")";
}

}  // namespace

Finding CheckDuration(const RunData& run, const Rules& rules) {
  const double seconds = run.MeasuredSeconds();
  std::string text = "requests were sent for " + SecondsText(seconds);
  if (seconds >= rules.min_seconds) return {"duration", true, text};
  return {"duration", false, text + ": run for at least " + SecondsText(rules.min_seconds)};
}

Finding CheckEarlyStopping(const RunData& run, const Rules& rules) {
  const double seconds = run.MeasuredSeconds();
  std::string problems;
  bool goals = false;
  const auto add = [&](const std::optional<std::string>& problem) {
    if (problem) problems += (problems.empty() ? "" : "; ") + *problem;
  };
  for (size_t cls = 0; cls < run.classes.size(); ++cls) {
    for (const LatencyGoal& goal : run.objectives[cls].latencies) {
      goals = true;
      add(TooFew("class '" + run.classes[cls] + "'", run.OfClass(cls).counted(), goal.quantile,
                 seconds, rules.confidence));
    }
  }
  // Reports show p99 whether anyone set a goal or not.
  if (!goals) add(TooFew("the run", run.Total().counted(), 0.99, seconds, rules.confidence));
  if (!problems.empty()) return {"early-stopping", false, problems};
  return {"early-stopping", true,
          std::string("there are enough requests for ") +
              (goals ? "each class's percentiles" : "p99") + " at a confidence of " +
              FoundShare(rules.confidence)};
}

Finding CheckStationary(const RunData& run, const Rules& rules) {
  const auto growth = [&](auto figure) {
    return GrowthOf(SeriesOf(run, figure), rules.confidence);
  };
  const Growth load = growth(Planned);
  if (load.blocks == 0) {
    return {"stationary", true,
            "not checked: that takes 10 s and there are " + SecondsText(run.MeasuredSeconds())};
  }
  // A load that is meant to grow makes all else grow.
  if (run.open_loop && Grew(load, 0, load.mean * rules.max_drift / 2)) {
    return {"stationary", true,
            "not checked: the load itself grows by " + FoundShare(load.growth / load.mean) +
                " of its mean over the run"};
  }
  const auto count = [](double value) { return FormatReal(value, "%.3g"); };
  const Growth in_flight = growth(InFlight), latency = growth(Latency), lag = growth(MaxLag);
  std::string problems;
  const auto add = [&](const std::string& problem) {
    problems += (problems.empty() ? "" : "; ") + problem;
  };
  // A closed loop has as many in flight as it has callers.
  const bool queue = run.open_loop && Grew(in_flight, rules.max_drift, 1);
  if (queue) {
    add(GrowthText("work in flight", in_flight, count, rules.confidence) +
        ": the server does not keep up, and a longer run would show longer latencies; lower "
        "--rate");
  }
  if (Grew(lag, rules.max_drift, static_cast<double>(rules.max_lag_ns))) {
    add(GrowthText("the client's lag", lag, FoundTime, rules.confidence) +
        ": the client does not keep up; lower --rate or add --workers");
  }
  if (!queue && Grew(latency, rules.max_drift, 0)) {
    add(GrowthText("latency", latency, FoundTime, rules.confidence) +
        ": this is no steady state; warm up for longer, or lower the load");
  }
  if (!problems.empty()) return {"stationary", false, problems};
  return {"stationary", true,
          std::string("neither ") + (run.open_loop ? "work in flight, " : "") +
              "latency nor the client's lag grew over the run by more than " +
              FoundShare(rules.max_drift) + " of its mean"};
}

}  // namespace castor::load
