#include "client/cli/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "client/cli/report.h"

namespace castor::cli {
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

template <typename T>
std::string Text(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return FormatReal(value, "%g");
  } else {
    return std::to_string(value);
  }
}

template <typename T>
std::string RangeText(T least, T greatest) {
  // Omit the type's own bounds. The least positive double stands for "above 0".
  if (greatest == std::numeric_limits<T>::max()) {
    if (least == std::numeric_limits<T>::lowest()) return "";
    return std::is_floating_point_v<T> && least == std::numeric_limits<T>::min()
               ? " above 0"
               : " of at least " + Text(least);
  }
  return " from " + Text(least) + " to " + Text(greatest);
}

// Leaves text that is not a number unchanged.
std::string_view WithoutPlus(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return text;
}

}  // namespace

template <typename T>
CLI::Validator Number(T least, T greatest) {
  return CLI::Validator(
      [=](std::string& input) -> std::string {
        const std::string_view digits = WithoutPlus(input);
        T value{};
        const char* const end = digits.data() + digits.size();
        const auto [rest, error] = std::from_chars(digits.data(), end, value);
        const bool read = error == std::errc() && rest == end;
        if (read && value >= least && value <= greatest) {
          input = std::is_integral_v<T> ? Text(value) : std::string(digits);
          return "";
        }
        return "'" + input + "' is not a " + (std::is_integral_v<T> ? "whole" : "finite") +
               " number" + RangeText(least, greatest);
      },
      "");
}

template CLI::Validator Number(int32_t least, int32_t greatest);
template CLI::Validator Number(int64_t least, int64_t greatest);
template CLI::Validator Number(uint64_t least, uint64_t greatest);
template CLI::Validator Number(double least, double greatest);

std::optional<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view name = text.substr(digits);
  text = text.substr(0, digits);
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    const double value = number * static_cast<double>(unit.nanoseconds);
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

CLI::Validator Seconds(double least, double greatest) {
  return CLI::Validator(
      [=](std::string& input) -> std::string {
        const bool bare = input.find_first_not_of("0123456789.") == std::string::npos;
        const auto duration = ParseDuration(bare ? input + "s" : input);
        const double value = duration ? std::chrono::duration<double>(*duration).count() : -1;
        if (value >= least && value <= greatest) {
          input = FormatReal(value, "%.17g");
          return "";
        }
        return "'" + input + "' is not a time from " + Text(least) + " s to " + Text(greatest) +
               " s";
      },
      "");
}

CLI::Validator Utf8() {
  return CLI::Validator(
      [](std::string& input) -> std::string {
        const auto invalid = FindInvalidUtf8(input);
        return invalid ? "byte " + std::to_string(*invalid + 1) + " is not UTF-8" : "";
      },
      "");
}

CLI::Validator Name() {
  return CLI::Validator(
      [](std::string& input) -> std::string {
        if (input.empty()) return "must not be empty";
        return Utf8()(input);
      },
      "");
}

CLI::Validator FileName() {
  return CLI::Validator(
      [](std::string& input) -> std::string { return input.empty() ? "must name a file" : ""; },
      "");
}

}  // namespace castor::cli
