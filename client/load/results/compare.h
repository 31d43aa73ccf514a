// Compares two runs of one plan, a before and b after a change: what became slower or faster, and
// whether that may be chance.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/load/results/run_data.h"

namespace castor::load {

// A condition on which a comparison fails, such as "p99 > +5%":
//
//   gate   = [class ":"] metric (">" | "<") change
//   metric = "p" percentile | "goodput" | "errors"     percentile: above 0, below 100, as in p99.9
//   change = ["+" | "-"] number "%"
//
// with blanks anywhere between. `change` is relative to a's figure for latencies and goodput, and
// in percentage points for errors: "errors > +0.1%" means from 0.2 % to more than 0.3 %. A gate
// without a class applies to each class and to the total.
struct Gate {
  std::string text{};    // as it was written
  std::string cls{};     // empty: all
  std::string metric{};  // "p99", "goodput", "errors"
  double quantile = 0;   // of a latency; 0: none
  bool above = true;
  double threshold = 0;  // a share: 0.05 is 5 %
};

// Throws std::runtime_error that shows the syntax.
Gate ParseGate(std::string_view text);

struct Interval {
  double low = 0, high = 0;
};

enum class Trend { kRegression, kImprovement, kNoChange, kUnclear };
const char* NameOf(Trend trend);  // "regression", "improvement", "no change", "unclear"

struct Change {
  std::string metric{};
  double quantile = 0;  // of a latency; 0: none
  double a = 0, b = 0;  // ns; requests a second; a share
  // b / a - 1; for errors b - a. Infinite when a answered and b did not.
  double change = 0;
  // The interval of `change`. Infinite on both sides if there are too few answers: fewer than 20
  // above the percentile in either run, or less than 10 s.
  Interval interval{};
  // Regression or improvement: the interval is on one side of 0, and the change at least 1 % (0.1
  // points for errors). No change: the interval is within 5 % (0.5 points) of 0. Else unclear: run
  // longer to know.
  Trend trend = Trend::kUnclear;
};

struct ClassComparison {
  std::string name;             // empty for the total
  std::vector<Change> changes;  // latencies by quantile, goodput, errors
};

// Failed: the whole interval of the change lies beyond the threshold. Passed: the change does not,
// and its interval is known. Unknown: there are too few answers, or the change lies beyond the
// threshold but its interval does not.
enum class GateOutcome { kPassed, kFailed, kUnknown };
struct GateResult {
  std::string gate, cls;  // as written; the class it was evaluated for, "total" for the total
  GateOutcome end = GateOutcome::kPassed;
  std::string text;  // a sentence with the figures
};

struct Comparison {
  std::vector<std::string> notes;        // differences that hinder the comparison: rate, length
  std::vector<ClassComparison> classes;  // in both runs; then the total if there are several
  std::vector<GateResult> gates;

  bool Has(GateOutcome end) const;  // any gate
  // Makes all results unclear, because a run is INVALID.
  void MarkUnclear();
  // Regression if any figure is one; else improvement, if any is; else unclear, if any is.
  Trend trend() const;
};

// The confidence of each interval: high, because there are many intervals.
inline constexpr double kCompareConfidence = 0.99;

// Compares latencies at p50, p90, p99, p99.9 and the gates' percentiles. Classes are matched by
// name. Throws std::runtime_error when the runs have no class in common, or a gate names a class
// that they do not both have.
Comparison Compare(const RunData& a, const RunData& b, const std::vector<Gate>& gates = {},
                   double confidence = kCompareConfidence);

}  // namespace castor::load
