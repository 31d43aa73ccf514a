#include "client/load/workload/toml_table.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "client/cli/command.h"
#include "client/cli/report.h"

namespace castor::load {
namespace {

constexpr size_t kMaxShown = 60;  // bytes of a wrong value in an error

[[noreturn]] void FailAt(const std::string& file, const toml::source_region& where,
                         const std::string& message) {
  const std::string line = where.begin.line > 0 ? ", line " + std::to_string(where.begin.line) : "";
  throw cli::UsageError(file + line + ": " + message);
}

std::string DescribeValue(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) {
      text << value;
    } else {
      text << (value.is_table() ? "a table" : "an array");
    }
  });
  std::string shown = text.str();
  if (shown.size() > kMaxShown) shown = shown.substr(0, kMaxShown) + "...";
  return shown;
}

std::string Number(double value) { return cli::FormatReal(value, "%.15g"); }

std::string TextOf(Range range) {
  return "a number " +
         (range.above ? "above " + Number(range.least) + " and at most "
                      : "from " + Number(range.least) + " to ") +
         Number(range.greatest);
}

}  // namespace

TomlTable::TomlTable(const toml::table& table, std::string file, std::string what)
    : table_(&table), file_(std::move(file)), what_(std::move(what)) {}

const toml::node* TomlTable::Find(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  return table_->get(key);
}

void TomlTable::Real(std::string_view key, Range range, double* value) {
  if (const auto* node = Find(key)) *value = RealOf(key, *node, range);
}

void TomlTable::Whole(std::string_view key, int64_t least, int64_t greatest, int64_t* value) {
  if (const auto* node = Find(key)) *value = WholeOf(key, *node, least, greatest);
}

void TomlTable::Time(std::string_view key, std::chrono::nanoseconds least,
                     std::chrono::nanoseconds greatest, std::chrono::nanoseconds* value) {
  const auto* node = Find(key);
  if (node == nullptr) return;
  const auto* text = node->as_string();
  const auto time = text == nullptr ? std::nullopt : ParseDuration(text->get());
  if (!time || *time < least || *time > greatest) {
    Refuse(key, *node,
           "a duration from \"" + FormatDuration(least) + "\" to \"" + FormatDuration(greatest) +
               "\", in ns, us, ms, s, m or h");
  }
  *value = *time;
}

void TomlTable::Text(std::string_view key, std::string* value) {
  const auto* node = Find(key);
  if (node == nullptr) return;
  const auto* text = node->as_string();
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
  if (text == nullptr || std::any_of(text->get().begin(), text->get().end(), is_control)) {
    Refuse(key, *node, "a string without control characters");
  }
  *value = text->get();
}

void TomlTable::Texts(std::string_view key, std::vector<std::string>* values) {
  const auto* node = Find(key);
  if (node == nullptr) return;
  const auto* array = node->as_array();
  if (array == nullptr) Refuse(key, *node, "an array of strings");
  values->clear();
  for (const toml::node& element : *array) {
    if (!element.is_string()) Refuse(key, element, "an array of strings");
    values->push_back(element.as_string()->get());
  }
}

void TomlTable::Choice(std::string_view key, const std::vector<std::string>& names, size_t* value) {
  const auto* node = Find(key);
  if (node == nullptr) return;
  const auto* text = node->as_string();
  const auto found =
      text == nullptr ? names.end() : std::find(names.begin(), names.end(), text->get());
  if (found == names.end()) Refuse(key, *node, "one of " + absl::StrJoin(names, ", "));
  *value = static_cast<size_t>(found - names.begin());
}

TomlTable TomlTable::SubTable(std::string_view key) {
  const toml::node& node = *Find(key);
  if (!node.is_table()) Refuse(key, node, "a table: {...}");
  return {*node.as_table(), file_, what_ + ": " + std::string(key)};
}

double TomlTable::RealOf(std::string_view key, const toml::node& node, Range range) const {
  double value = std::numeric_limits<double>::quiet_NaN();
  if (const auto* real = node.as_floating_point()) value = real->get();
  if (const auto* whole = node.as_integer()) value = static_cast<double>(whole->get());
  const bool fits = value >= range.least && value <= range.greatest;  // false for NaN
  if (!fits || (range.above && value == range.least)) Refuse(key, node, TextOf(range));
  return value;
}

int64_t TomlTable::WholeOf(std::string_view key, const toml::node& node, int64_t least,
                           int64_t greatest) const {
  const auto* whole = node.as_integer();
  if (whole == nullptr || whole->get() < least || whole->get() > greatest) {
    Refuse(key, node,
           "a whole number from " + std::to_string(least) + " to " + std::to_string(greatest));
  }
  return whole->get();
}

void TomlTable::RefuseUnknownKeys() const {
  for (const auto& [key, node] : *table_) {
    if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
    const std::string name(key.str());
    FailAt(file_, key.source(),
           what_ + " has no key '" + name.substr(0, kMaxShown) + "'; it may have " +
               absl::StrJoin(known_, ", "));
  }
}

void TomlTable::Refuse(std::string_view key, const toml::node& node,
                       const std::string& expected) const {
  FailAt(file_, node.source(),
         what_ + ": " + std::string(key) + " must be " + expected + ", not " + DescribeValue(node));
}

void TomlTable::Fail(std::string_view key, const std::string& message) const {
  const toml::node* node = table_->get(key);
  FailAt(file_, node == nullptr ? table_->source() : node->source(), what_ + ": " + message);
}

namespace {

bool IsDecimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos;
}

[[noreturn]] void Refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument("'" + std::string(text) + "' " + why +
                              "; write it as \"p99 <= 50ms\" or \"errors <= 0.1%\"");
}

}  // namespace

// Scales by the exponent in the text, because a multiplication would round again.
std::optional<double> ParsePercent(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  if (!IsDecimal(text)) return std::nullopt;
  double share = 0;
  if (!absl::SimpleAtod(std::string(text) + "e-2", &share) || share > 1) return std::nullopt;
  return share;
}

std::string QuantileName(double quantile) { return "p" + cli::FormatReal(100 * quantile, "%.10g"); }

void AddGoal(std::string_view text, Objective* objective) {
  constexpr std::string_view kSign = "<=";
  const size_t sign = text.find(kSign);
  if (sign == std::string_view::npos) Refuse(text, "is not an objective");
  std::string of(text.substr(0, sign)), limit(text.substr(sign + kSign.size()));
  absl::StripAsciiWhitespace(&of);
  absl::StripAsciiWhitespace(&limit);
  if (of == "errors") {
    if (objective->max_error_share) Refuse(text, "is a second objective for errors");
    objective->max_error_share = ParsePercent(limit);
    if (!objective->max_error_share) Refuse(text, "needs a share from 0% to 100% after <=");
    return;
  }
  if (!of.starts_with('p')) Refuse(text, "is neither for a percentile nor for errors");
  const auto quantile = ParsePercent(of.substr(1) + "%");
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
