// The gates of compare.h: "p99 > +5%".

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include "client/load/judge/compare.h"
#include "client/load/workload/objective.h"
#include "client/load/workload/units.h"

namespace castor::load {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Digits with an optional fraction, and nothing else.
std::optional<double> Decimal(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (text.empty() || text.front() == '-' || error != std::errc() || rest != end) return {};
  if (!std::isfinite(value)) return {};
  return value;
}

[[noreturn]] void Refuse(std::string_view gate, const std::string& what) {
  throw std::runtime_error("'" + std::string(gate) + "' is no condition: " + what +
                           "; write it like \"p99 > +5%\" or \"short: goodput < -2%\"");
}

void ParseMetric(std::string_view metric, Gate& gate) {
  gate.metric = metric;
  if (metric == "goodput" || metric == "errors") return;
  const auto quantile = metric.starts_with('p') ? ParsePercent(std::string(metric.substr(1)) + "%")
                                                : std::optional<double>();
  if (!quantile || *quantile <= 0 || *quantile >= 1) {
    Refuse(gate.text, "'" + gate.metric + "' is none of p50 (or any percentile above p0 and below" +
                          " p100), goodput, errors");
  }
  gate.quantile = *quantile;
  gate.metric = QuantileName(gate.quantile);
}

double ParseChange(std::string_view change, std::string_view gate) {
  std::string_view number = change;
  if (!number.ends_with('%')) {
    Refuse(gate, "the change '" + std::string(change) + "' must end in %");
  }
  number = Trimmed(number.substr(0, number.size() - 1));
  const bool negative = number.starts_with('-');
  if (negative || number.starts_with('+')) number = Trimmed(number.substr(1));
  const auto percent = Decimal(number);
  if (!percent) Refuse(gate, "the change '" + std::string(change) + "' is no number");
  return (negative ? -*percent : *percent) / 100;
}

}  // namespace

Gate ParseGate(std::string_view text) {
  Gate gate;
  gate.text = Trimmed(text);
  // A class's name may have any character, so the last colon ends it.
  std::string_view rest = gate.text;
  if (const size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
    gate.cls = Trimmed(rest.substr(0, colon));
    if (gate.cls.empty()) Refuse(gate.text, "there is no class before the colon");
    rest = rest.substr(colon + 1);
  }
  const size_t sign = rest.find_first_of("<>");
  if (sign == std::string_view::npos) Refuse(gate.text, "there is neither > nor < in it");
  gate.above = rest[sign] == '>';
  ParseMetric(Trimmed(rest.substr(0, sign)), gate);
  gate.threshold = ParseChange(Trimmed(rest.substr(sign + 1)), gate.text);
  return gate;
}

}  // namespace castor::load
