#include "client/cli/values.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "client/cli/report.h"

namespace castor::cli {
namespace {

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
  // Bounds that are the type's own are not worth printing. The least positive double stands for
  // "above 0".
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
        return "'" + input + "' is no " + (std::is_integral_v<T> ? "whole" : "finite") + " number" +
               RangeText(least, greatest);
      },
      "");
}

template CLI::Validator Number(int32_t least, int32_t greatest);
template CLI::Validator Number(int64_t least, int64_t greatest);
template CLI::Validator Number(uint64_t least, uint64_t greatest);
template CLI::Validator Number(double least, double greatest);

CLI::Validator Seconds(double least, double greatest) {
  return CLI::Validator(
      [=](std::string& input) -> std::string {
        constexpr std::pair<std::string_view, double> kUnits[] = {
            {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
        std::string_view digits = input;
        double unit = 1;
        for (const auto& [name, seconds] : kUnits) {
          if (!digits.ends_with(name)) continue;
          digits.remove_suffix(name.size());
          unit = seconds;
          break;
        }
        double value = 0;
        const char* const end = digits.data() + digits.size();
        const auto [rest, error] = std::from_chars(digits.data(), end, value);
        value *= unit;
        if (error == std::errc() && rest == end && value >= least && value <= greatest) {
          input = FormatReal(value, "%.17g");
          return "";
        }
        return "'" + input + "' is no time from " + Text(least) + " s to " + Text(greatest) + " s";
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
