#include "client/load/workload/units.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "client/cli/report.h"

namespace castor::load {
namespace {

bool IsDecimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos;
}

std::optional<double> ParseDecimal(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

[[noreturn]] void Refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument("'" + std::string(text) + "' " + why +
                              "; write it as \"p99 <= 50ms\" or \"errors <= 0.1%\"");
}

}  // namespace

// The decimal point moves in the text: a multiplication would round once more.
std::optional<double> ParsePercent(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  if (!IsDecimal(text)) return std::nullopt;
  const std::optional<double> share = ParseDecimal(std::string(text) + "e-2");
  if (!share || *share > 1) return std::nullopt;
  return share;
}

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::string QuantileName(double quantile) { return "p" + cli::FormatReal(100 * quantile, "%.10g"); }

void AddGoal(std::string_view text, Objective* objective) {
  constexpr std::string_view kSign = "<=";
  const size_t sign = text.find(kSign);
  if (sign == std::string_view::npos) Refuse(text, "is not an objective");
  const std::string_view of = Trimmed(text.substr(0, sign));
  const std::string_view limit = Trimmed(text.substr(sign + kSign.size()));
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

}  // namespace castor::load
