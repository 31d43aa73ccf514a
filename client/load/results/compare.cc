#include "client/load/results/compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "client/cli/report.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastAbove = 20;  // answers above a percentile, for its interval to mean anything
constexpr size_t kLeastSeconds = 5;

// One class of one run, or the total.
struct Side {
  Cell sum;
  std::vector<Second> seconds;
  double measured_seconds = 0;

  std::vector<SecondFigures> figures() const;
};

std::vector<SecondFigures> Side::figures() const {
  std::vector<SecondFigures> figures;
  for (const Second& second : seconds) {
    int64_t counted = 0;
    for (int i = 0; i < kOutcomes; ++i) counted += second.outcomes[i];
    counted -= second.outcomes[static_cast<int>(Outcome::kCancelled)];
    figures.push_back({.latency = &second.intended,
                       .good = second.good,
                       .counted = counted,
                       .errors = counted - second.outcomes[static_cast<int>(Outcome::kOk)]});
  }
  return figures;
}

// nullopt: the total.
Side SideOf(const RunData& run, std::optional<size_t> cls) {
  Side side;
  side.sum = cls ? run.OfClass(*cls) : run.Total();
  for (size_t i = 0; i < run.seconds.size(); ++i) {
    side.seconds.push_back(cls ? run.seconds[i][*cls] : run.OfSecond(i));
  }
  side.measured_seconds = run.MeasuredSeconds();
  return side;
}

double Ratio(double a, double b) {
  if (a > 0) return b > 0 ? b / a - 1 : -1;
  return b > 0 ? kInfinity : 0;
}

// A latency of 0 stands for no answer at all, which is worse than any.
double LatencyRatio(double a, double b) { return a > 0 && b <= 0 ? kInfinity : Ratio(a, b); }

using Pick = double (*)(const Figures&, size_t);
using Combine = double (*)(double, double);

// How a change is made from two runs' figures, or from resamples of them.
struct Metric {
  std::string name;
  double quantile = 0;
  size_t index = 0;  // of the quantile
  Pick pick;
  Combine combine;
  bool less_is_better = true;
  double scale = 1;  // of least_change
  double no_change = 0;
};

std::vector<Metric> MetricsOf(const std::vector<double>& quantiles, const CompareOptions& options) {
  std::vector<Metric> metrics;
  for (size_t i = 0; i < quantiles.size(); ++i) {
    metrics.push_back({.name = QuantileName(quantiles[i]),
                       .quantile = quantiles[i],
                       .index = i,
                       .pick = [](const Figures& f, size_t k) { return f.quantiles[k]; },
                       .combine = LatencyRatio,
                       .no_change = options.no_change});
  }
  metrics.push_back({.name = "goodput",
                     .pick = [](const Figures& f, size_t) { return f.good; },
                     .combine = Ratio,
                     .less_is_better = false,
                     .no_change = options.no_change});
  metrics.push_back({.name = "errors",
                     .pick = [](const Figures& f, size_t) { return f.error_share; },
                     .combine = [](double a, double b) { return b - a; },
                     .scale = 0.1,
                     .no_change = options.no_change_errors});
  return metrics;
}

// The run's own figures, from all of its answers.
Figures FiguresOf(const Side& side, const std::vector<double>& quantiles) {
  Figures figures;
  for (const double quantile : quantiles) {
    figures.quantiles.push_back(static_cast<double>(side.sum.intended.ValueAt(quantile)));
  }
  figures.good =
      side.measured_seconds > 0 ? static_cast<double>(side.sum.good) / side.measured_seconds : 0;
  figures.error_share = side.sum.error_share();
  return figures;
}

bool EnoughFor(const Metric& metric, const Side& side) {
  if (side.seconds.size() < kLeastSeconds) return false;
  const auto answers = static_cast<double>(side.sum.intended.count());
  return metric.quantile == 0 || answers * (1 - metric.quantile) >= kLeastAbove;
}

Trend TrendOf(const Change& change, const Metric& metric, const CompareOptions& options) {
  const Interval& interval = change.interval;
  const double least = options.least_change * metric.scale;
  const bool rose = interval.low > 0 && change.change >= least;
  const bool fell = interval.high < 0 && change.change <= -least;
  if (rose) return metric.less_is_better ? Trend::kRegression : Trend::kImprovement;
  if (fell) return metric.less_is_better ? Trend::kImprovement : Trend::kRegression;
  const bool near = interval.low >= -metric.no_change && interval.high <= metric.no_change;
  return near ? Trend::kNoChange : Trend::kUnclear;
}

struct BothSides {
  const Side& a;
  const Side& b;
  Figures figures_a, figures_b;
  std::vector<Figures> resampled_a, resampled_b;
  double blocks = 0;
};

Change ChangeOf(const Metric& metric, const BothSides& sides, const CompareOptions& options) {
  Change change;
  change.metric = metric.name;
  change.quantile = metric.quantile;
  change.a = metric.pick(sides.figures_a, metric.index);
  change.b = metric.pick(sides.figures_b, metric.index);
  change.change = metric.combine(change.a, change.b);
  const bool answered = sides.a.sum.intended.count() > 0;
  if (metric.quantile > 0 && answered && change.b <= 0 && EnoughFor(metric, sides.a)) {
    change.interval = {kInfinity, kInfinity};
  } else if (!EnoughFor(metric, sides.a) || !EnoughFor(metric, sides.b)) {
    change.interval = {-kInfinity, kInfinity};
  } else if (!std::isfinite(change.change)) {
    change.interval = {change.change, change.change};
  } else {
    std::vector<double> changes;
    for (size_t i = 0; i < sides.resampled_a.size(); ++i) {
      changes.push_back(metric.combine(metric.pick(sides.resampled_a[i], metric.index),
                                       metric.pick(sides.resampled_b[i], metric.index)));
    }
    change.interval =
        SpreadInterval(change.change, std::move(changes), options.confidence, sides.blocks);
  }
  change.trend = TrendOf(change, metric, options);
  return change;
}

ClassComparison CompareSides(const std::string& name, const Side& a, const Side& b,
                             const std::vector<double>& quantiles, const CompareOptions& options) {
  const auto resample = [&](const Side& side, uint64_t seed) {
    if (side.seconds.empty()) return std::vector<Figures>();
    return Resample(side.figures(), quantiles, options.resamples, seed);
  };
  BothSides sides = {.a = a,
                     .b = b,
                     .figures_a = FiguresOf(a, quantiles),
                     .figures_b = FiguresOf(b, quantiles),
                     .resampled_a = resample(a, 2 * options.seed),
                     .resampled_b = resample(b, 2 * options.seed + 1)};
  for (const Side* const side : {&a, &b}) {
    const size_t seconds = side->seconds.size();
    sides.blocks += static_cast<double>(seconds) / static_cast<double>(BlockSeconds(seconds));
  }

  ClassComparison comparison;
  comparison.name = name;
  for (const Metric& metric : MetricsOf(quantiles, options)) {
    comparison.changes.push_back(ChangeOf(metric, sides, options));
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
    result.end = GateEnd::kFailed;
  } else if (!known || beyond(change->change)) {
    result.end = GateEnd::kUnknown;
  }
  result.text = gate.metric + " of " + result.cls + " changed by " + Signed(change->change) + " (" +
                cli::FormatReal(100 * confidence, "%g") + " % interval " +
                Signed(change->interval.low) + " to " + Signed(change->interval.high) + ")";
  if (result.end == GateEnd::kFailed) {
    result.text += ": beyond " + Signed(gate.threshold);
  } else if (!known) {
    result.text += ": too few answers to tell; run for longer";
  } else if (result.end == GateEnd::kUnknown) {
    result.text +=
        ": beyond " + Signed(gate.threshold) + ", but that may be chance; run for longer to know";
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

// ---- gates as text

[[noreturn]] void RefuseGate(std::string_view gate, const std::string& what) {
  throw std::runtime_error("'" + std::string(gate) + "' is no condition: " + what +
                           "; write it like \"p99 > +5%\" or \"short: goodput < -2%\"");
}

void ParseMetric(std::string_view metric, Gate& gate) {
  gate.metric = metric;
  if (metric == "goodput" || metric == "errors") return;
  const auto quantile = metric.starts_with('p') ? ParsePercent(std::string(metric.substr(1)) + "%")
                                                : std::optional<double>();
  if (!quantile || *quantile <= 0 || *quantile >= 1) {
    RefuseGate(gate.text, "'" + gate.metric +
                              "' must be one of p50 (or any percentile above p0 and below" +
                              " p100), goodput, errors");
  }
  gate.quantile = *quantile;
  gate.metric = QuantileName(gate.quantile);
}

double ParseChange(std::string_view change, std::string_view gate) {
  std::string_view number = change;
  const bool negative = number.starts_with('-');
  if (negative || number.starts_with('+')) number = Trimmed(number.substr(1));
  double percent = 0;
  const char* const end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, percent, std::chars_format::fixed);
  const bool read = error == std::errc() && percent >= 0 && std::isfinite(percent);
  if (!read || Trimmed({rest, static_cast<size_t>(end - rest)}) != "%") {
    RefuseGate(gate, "the change '" + std::string(change) + "' is no number and %");
  }
  return (negative ? -percent : percent) / 100;
}

}  // namespace

Gate ParseGate(std::string_view text) {
  Gate gate;
  gate.text = Trimmed(text);
  // A class's name may have any character, so the last colon ends it.
  std::string_view rest = gate.text;
  if (const size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
    gate.cls = Trimmed(rest.substr(0, colon));
    if (gate.cls.empty()) RefuseGate(gate.text, "there is no class before the colon");
    rest = rest.substr(colon + 1);
  }
  const size_t sign = rest.find_first_of("<>");
  if (sign == std::string_view::npos) RefuseGate(gate.text, "there is neither > nor < in it");
  gate.above = rest[sign] == '>';
  ParseMetric(Trimmed(rest.substr(0, sign)), gate);
  gate.threshold = ParseChange(Trimmed(rest.substr(sign + 1)), gate.text);
  return gate;
}

const char* NameOf(Trend trend) {
  switch (trend) {
    case Trend::kRegression:
      return "regression";
    case Trend::kImprovement:
      return "improvement";
    case Trend::kNoChange:
      return "no change";
    case Trend::kUnclear:
      break;
  }
  return "unclear";
}

bool Comparison::Has(GateEnd end) const {
  return std::any_of(gates.begin(), gates.end(), [&](const GateResult& g) { return g.end == end; });
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

Comparison Compare(const RunData& a, const RunData& b, const CompareOptions& options) {
  std::vector<double> quantiles = options.quantiles;
  for (const Gate& gate : options.gates) {
    const auto same = [&](double q) { return QuantileName(q) == gate.metric; };
    if (gate.quantile > 0 && std::none_of(quantiles.begin(), quantiles.end(), same)) {
      quantiles.push_back(gate.quantile);
    }
  }
  std::sort(quantiles.begin(), quantiles.end());

  Comparison comparison;
  comparison.notes = NotesOn(a, b);
  for (size_t i = 0; i < a.classes.size(); ++i) {
    const auto same = std::find(b.classes.begin(), b.classes.end(), a.classes[i]);
    if (same == b.classes.end()) continue;
    const auto k = static_cast<size_t>(same - b.classes.begin());
    comparison.classes.push_back(
        CompareSides(a.classes[i], SideOf(a, i), SideOf(b, k), quantiles, options));
  }
  if (comparison.classes.empty()) {
    throw std::runtime_error("the runs have no class in common, so there is nothing to compare");
  }
  // The total of other classes than those compared would say nothing.
  const bool all = comparison.classes.size() == a.classes.size() &&
                   comparison.classes.size() == b.classes.size();
  if (all && comparison.classes.size() > 1) {
    comparison.classes.push_back(
        CompareSides("", SideOf(a, {}), SideOf(b, {}), quantiles, options));
  }

  for (const Gate& gate : options.gates) {
    bool found = false;
    for (const ClassComparison& cls : comparison.classes) {
      if (!gate.cls.empty() && cls.name != gate.cls) continue;
      comparison.gates.push_back(Evaluate(gate, cls, options.confidence));
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
