#include "client/load/workload/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace castor::load {
namespace {

struct Unit {
  std::string_view name;
  int64_t nanoseconds;
};
constexpr std::array<Unit, 6> kUnits = {{{"h", 3'600'000'000'000},
                                         {"m", 60'000'000'000},
                                         {"s", 1'000'000'000},
                                         {"ms", 1'000'000},
                                         {"us", 1'000},
                                         {"ns", 1}}};
constexpr double kLongest = 90.0 * 24 * 3600 * 1e9;

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

}  // namespace

std::optional<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view name = text.substr(digits);
  text = text.substr(0, digits);
  if (!IsDecimal(text)) return std::nullopt;
  const std::optional<double> number = ParseDecimal(text);
  if (!number) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    const double value = *number * static_cast<double>(unit.nanoseconds);
    if (value > kLongest) return std::nullopt;
    return std::chrono::nanoseconds(static_cast<int64_t>(std::floor(value + 0.5)));
  }
  return std::nullopt;
}

std::string FormatDuration(std::chrono::nanoseconds duration) {
  if (duration.count() == 0) return "0s";
  for (const Unit& unit : kUnits) {
    if (duration.count() % unit.nanoseconds == 0) {
      return std::to_string(duration.count() / unit.nanoseconds) + std::string(unit.name);
    }
  }
  return "";  // a nanosecond divides everything
}

// Both move the decimal point in the text: a multiplication by 100 would round once more.
std::optional<double> ParsePercent(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  if (!IsDecimal(text)) return std::nullopt;
  const std::optional<double> share = ParseDecimal(std::string(text) + "e-2");
  if (!share || *share > 1) return std::nullopt;
  return share;
}

std::string FormatPercent(double share) {
  std::array<char, 400> buffer;  // the least double has 324 decimals
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), share, std::chars_format::fixed);
  std::string text(buffer.data(), end.ptr);
  const size_t point = std::min(text.find('.'), text.size());
  std::string whole = text.substr(0, point);
  std::string decimals = point < text.size() ? text.substr(point + 1) : "";
  while (decimals.size() < 2) decimals += '0';
  whole += decimals.substr(0, 2);
  decimals.erase(0, 2);
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size() - 1));
  return decimals.empty() ? whole : whole + "." + decimals;
}

}  // namespace castor::load
