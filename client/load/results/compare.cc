#include "client/load/results/compare.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <regex>
#include <set>
#include <stdexcept>

#include "client/cli/report.h"
#include "client/load/results/statistics.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastAbove = 20;  // answers above a percentile that its interval needs
constexpr size_t kLongestGate = 1000;

// A figure to compare: a latency, the goodput, or the errors.
struct Metric {
  std::string name;
  double quantile = 0;  // of a latency; 0: none
  bool less_is_better = true;
  bool is_share = false;  // its changes are differences, in points

  // The change from figure a to figure b.
  double Change(double a, double b) const {
    if (is_share) return b - a;
    // A latency of 0 means no answers, which is worse than any latency.
    if (quantile > 0 && a > 0 && b <= 0) return kInfinity;
    if (a > 0) return b > 0 ? b / a - 1 : -1;
    return b > 0 ? kInfinity : 0;
  }
};

std::vector<Metric> MetricsOf(const std::vector<double>& quantiles) {
  std::vector<Metric> metrics;
  for (const double quantile : quantiles) metrics.push_back({QuantileName(quantile), quantile});
  metrics.push_back({.name = "goodput", .less_is_better = false});
  metrics.push_back({.name = "errors", .is_share = true});
  return metrics;
}

// The figures of one class of a run, or of the total, by metric, with their standard errors.
struct Side {
  int64_t answers = 0;
  size_t blocks = 0;  // 0: the run is too short to have errors
  std::vector<double> figures{};
  std::vector<double> errors{};

  bool EnoughFor(const Metric& metric) const {
    return blocks > 0 && (metric.quantile == 0 ||
                          static_cast<double>(answers) * (1 - metric.quantile) >= kLeastAbove);
  }
};

// `cls` is nullopt for the total.
Side SideOf(const RunData& run, std::optional<size_t> cls, const std::vector<double>& quantiles) {
  const Cell sum = cls ? run.OfClass(*cls) : run.Total();
  std::vector<Second> seconds;
  for (size_t i = 0; i < run.seconds.size(); ++i) {
    seconds.push_back(cls ? run.seconds[i][*cls] : run.OfSecond(i));
  }
  Side side = {
      .answers = sum.intended.count(),
      .blocks = BlocksOf(seconds.size()),
      .figures = FiguresOf({.outcomes = sum.outcomes, .good = sum.good, .intended = sum.intended},
                           run.MeasuredSeconds(), quantiles)};
  if (side.blocks > 0) side.errors = StandardErrors(seconds, quantiles, side.figures);
  return side;
}

Trend TrendOf(const Change& change, const Metric& metric) {
  const Interval& interval = change.interval;
  const double least = metric.is_share ? 0.001 : 0.01, near = metric.is_share ? 0.005 : 0.05;
  const bool rose = interval.low > 0 && change.change >= least;
  const bool fell = interval.high < 0 && change.change <= -least;
  if (rose || fell) return rose == metric.less_is_better ? Trend::kRegression : Trend::kImprovement;
  return interval.low >= -near && interval.high <= near ? Trend::kNoChange : Trend::kUnclear;
}

Interval IntervalOf(const Metric& metric, size_t i, const Side& a, const Side& b, double change,
                    double confidence) {
  if (!a.EnoughFor(metric)) return {-kInfinity, kInfinity};
  if (metric.quantile > 0 && b.answers == 0) return {kInfinity, kInfinity};
  if (!b.EnoughFor(metric)) return {-kInfinity, kInfinity};
  if (!std::isfinite(change)) return {change, change};
  double error = std::hypot(a.errors[i], b.errors[i]);
  if (!metric.is_share) {  // of the quotient b / a, to the first order
    const double before = a.figures[i], after = b.figures[i];
    if (before <= 0) return {change, change};
    error = std::hypot(b.errors[i] / before, a.errors[i] * after / (before * before));
  }
  const auto degrees = static_cast<double>(a.blocks + b.blocks - 2);
  const double reach = StudentQuantile(confidence, degrees) * error;
  return {change - reach, change + reach};
}

ClassComparison CompareSides(const std::string& name, const Side& a, const Side& b,
                             const std::vector<double>& quantiles, double confidence) {
  ClassComparison comparison = {.name = name, .changes = {}};
  const std::vector<Metric> metrics = MetricsOf(quantiles);
  for (size_t i = 0; i < metrics.size(); ++i) {
    const Metric& metric = metrics[i];
    Change& change = comparison.changes.emplace_back(Change{
        .metric = metric.name, .quantile = metric.quantile, .a = a.figures[i], .b = b.figures[i]});
    change.change = metric.Change(change.a, change.b);
    change.interval = IntervalOf(metric, i, a, b, change.change, confidence);
    change.trend = TrendOf(change, metric);
  }
  return comparison;
}

std::string Signed(double share) {
  if (!std::isfinite(share)) return share > 0 ? "+inf" : "-inf";
  return cli::FormatReal(100 * share, "%+.2f %%");
}

GateResult Evaluate(const Gate& gate, const ClassComparison& comparison, double confidence) {
  GateResult result;
  result.gate = gate.text;
  result.cls = comparison.name.empty() ? "total" : comparison.name;
  const auto change = std::find_if(comparison.changes.begin(), comparison.changes.end(),
                                   [&](const Change& c) { return c.metric == gate.metric; });
  const auto beyond = [&](double value) {
    return gate.above ? value > gate.threshold : value < gate.threshold;
  };
  const bool known = std::isfinite(change->interval.high - change->interval.low) ||
                     change->interval.low == change->interval.high;
  if (beyond(gate.above ? change->interval.low : change->interval.high)) {
    result.end = GateOutcome::kFailed;
  } else if (!known || beyond(change->change)) {
    result.end = GateOutcome::kUnknown;
  }
  result.text = gate.metric + " of " + result.cls + " changed by " + Signed(change->change) + " (" +
                cli::FormatReal(100 * confidence, "%g") + " % interval " +
                Signed(change->interval.low) + " to " + Signed(change->interval.high) + ")";
  if (result.end == GateOutcome::kFailed) {
    result.text += ": beyond " + Signed(gate.threshold);
  } else if (!known) {
    result.text += ": too few answers to tell; run longer";
  } else if (result.end == GateOutcome::kUnknown) {
    result.text += ": beyond " + Signed(gate.threshold) + ", but that may be chance; run longer";
  } else {
    result.text += ": not beyond " + Signed(gate.threshold);
  }
  return result;
}

std::vector<std::string> NotesOn(const RunData& a, const RunData& b) {
  std::vector<std::string> notes;
  const auto differ = [&](const std::string& what, const std::string& in_a,
                          const std::string& in_b) {
    if (in_a != in_b) notes.push_back("the " + what + " differ: " + in_a + " and " + in_b);
  };
  const auto kind = [](const RunData& run) { return run.open_loop ? "open" : "closed"; };
  differ("kinds of loop", kind(a), kind(b));
  differ("rates asked for", cli::FormatReal(a.asked_rate, "%g/s"),
         cli::FormatReal(b.asked_rate, "%g/s"));
  differ("lengths", cli::FormatReal(a.asked_seconds, "%g s"),
         cli::FormatReal(b.asked_seconds, "%g s"));
  if (notes.empty() && a.workload != b.workload) {
    notes.push_back("the workloads differ: goodput, for one, depends on objectives");
  }
  return notes;
}

}  // namespace

Gate ParseGate(std::string_view text) {
  // A class's name may contain colons, so the last colon ends it.
  static const std::regex kGate(
      R"( *(?:(.*[^ ]) *: *)?(p([0-9.]+)|goodput|errors) *([<>]) *([+-]?) *([0-9.]+) *% *)");
  std::cmatch parts;
  Gate gate;
  gate.text = text;
  absl::StripAsciiWhitespace(&gate.text);
  bool read = text.size() < kLongestGate &&
              std::regex_match(text.data(), text.data() + text.size(), parts, kGate);
  double percent = 0;
  read = read && absl::SimpleAtod(parts[6].str(), &percent);
  if (read && parts[3].matched) {
    gate.quantile = ParsePercent(parts[3].str() + "%").value_or(0);
    read = gate.quantile > 0 && gate.quantile < 1;
  }
  if (!read) {
    throw std::runtime_error("'" + gate.text +
                             "' is not a condition on p50 (or any percentile above p0 and below "
                             "p100), goodput or errors; write it like \"p99 > +5%\" or \"short: "
                             "goodput < -2%\"");
  }
  gate.cls = parts[1];
  gate.metric = gate.quantile > 0 ? QuantileName(gate.quantile) : parts[2].str();
  gate.above = parts[4] == ">";
  gate.threshold = (parts[5] == "-" ? -percent : percent) / 100;
  return gate;
}

const char* NameOf(Trend trend) {
  static constexpr const char* kNames[] = {"regression", "improvement", "no change", "unclear"};
  return kNames[static_cast<size_t>(trend)];
}

bool Comparison::Has(GateOutcome end) const {
  return std::any_of(gates.begin(), gates.end(), [&](const GateResult& g) { return g.end == end; });
}

void Comparison::MarkUnclear() {
  for (ClassComparison& cls : classes) {
    for (Change& change : cls.changes) change.trend = Trend::kUnclear;
  }
  for (GateResult& gate : gates) gate.end = GateOutcome::kUnknown;
}

Trend Comparison::trend() const {
  Trend worst = Trend::kNoChange;
  for (const Trend trend : {Trend::kRegression, Trend::kImprovement, Trend::kUnclear}) {
    for (const ClassComparison& cls : classes) {
      for (const Change& change : cls.changes) {
        if (worst == Trend::kNoChange && change.trend == trend) worst = trend;
      }
    }
  }
  return worst;
}

Comparison Compare(const RunData& a, const RunData& b, const std::vector<Gate>& gates,
                   double confidence) {
  std::set<double> wanted = {0.5, 0.9, 0.99, 0.999};
  for (const Gate& gate : gates) {
    if (gate.quantile > 0) wanted.insert(gate.quantile);
  }
  const std::vector<double> quantiles(wanted.begin(), wanted.end());
  const auto compare = [&](const std::string& name, std::optional<size_t> in_a,
                           std::optional<size_t> in_b) {
    return CompareSides(name, SideOf(a, in_a, quantiles), SideOf(b, in_b, quantiles), quantiles,
                        confidence);
  };
  Comparison comparison;
  comparison.notes = NotesOn(a, b);
  for (size_t i = 0; i < a.classes.size(); ++i) {
    const auto same = std::find(b.classes.begin(), b.classes.end(), a.classes[i]);
    if (same == b.classes.end()) continue;
    const auto k = static_cast<size_t>(same - b.classes.begin());
    comparison.classes.push_back(compare(a.classes[i], i, k));
  }
  if (comparison.classes.empty()) {
    throw std::runtime_error("the runs have no class in common, so there is nothing to compare");
  }
  // A total is comparable only if both runs have the same classes.
  const bool all = comparison.classes.size() == a.classes.size() &&
                   comparison.classes.size() == b.classes.size();
  if (all && comparison.classes.size() > 1) {
    comparison.classes.push_back(compare("", {}, {}));
  }

  for (const Gate& gate : gates) {
    bool found = false;
    for (const ClassComparison& cls : comparison.classes) {
      if (!gate.cls.empty() && cls.name != gate.cls) continue;
      comparison.gates.push_back(Evaluate(gate, cls, confidence));
      found = true;
    }
    if (!found) {
      throw std::runtime_error("'" + gate.text + "' names class '" + gate.cls +
                               "', which the runs do not both have");
    }
  }
  return comparison;
}

}  // namespace castor::load
