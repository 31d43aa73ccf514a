#include "server/options/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>

namespace castor::server {
namespace {

struct Unit {
  std::string_view name;  // lower case
  int64_t factor;
};

constexpr int64_t kKi = 1024;
constexpr auto kByteUnits = std::to_array<Unit>({
    {"tib", kKi* kKi* kKi* kKi},
    {"gib", kKi* kKi* kKi},
    {"mib", kKi* kKi},
    {"kib", kKi},
    {"b", 1},
    {"", 1},
    {"t", kKi* kKi* kKi* kKi},
    {"ti", kKi* kKi* kKi* kKi},
    {"g", kKi* kKi* kKi},
    {"gi", kKi* kKi* kKi},
    {"m", kKi* kKi},
    {"mi", kKi* kKi},
    {"k", kKi},
    {"ki", kKi},
    {"kb", 1000},
    {"mb", 1000 * 1000},
    {"gb", 1000 * 1000 * 1000},
    {"tb", int64_t{1000} * 1000 * 1000 * 1000},
});
constexpr auto kTimeUnits = std::to_array<Unit>({
    {"h", int64_t{3600} * 1000 * 1000},
    {"m", int64_t{60} * 1000 * 1000},
    {"s", 1000 * 1000},
    {"ms", 1000},
    {"us", 1},
});

std::optional<int64_t> Parse(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || std::signbit(number)) return std::nullopt;
  std::string name(rest, text.data() + text.size());
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Unit& unit : units) {
    if (unit.name != name) continue;
    // Whole numbers stay exact; a double would round above 2^53.
    int64_t whole = 0;
    int64_t product = 0;
    const auto [end, overflow] = std::from_chars(text.data(), rest, whole);
    if (end == rest) {
      if (overflow != std::errc() || __builtin_mul_overflow(whole, unit.factor, &product)) {
        return std::nullopt;
      }
      return product;
    }
    const double value = number * static_cast<double>(unit.factor);
    if (value >= 0x1p63) return std::nullopt;
    return static_cast<int64_t>(value);
  }
  return std::nullopt;
}

std::string Format(int64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value % unit.factor == 0) {
      std::string name(unit.name);
      // "mib" is printed as "MiB", "b" as "B"; units of time stay as they are.
      if (name == "b" || name.ends_with("ib")) {
        name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
        name.back() = 'B';
      }
      return std::to_string(value / unit.factor) + name;
    }
  }
  return std::to_string(value);
}

}  // namespace

std::optional<int64_t> ParseBytes(std::string_view text) { return Parse(text, kByteUnits); }

std::optional<std::chrono::microseconds> ParseDuration(std::string_view text) {
  if (text == "0") return std::chrono::microseconds(0);
  const std::optional<int64_t> value = Parse(text, kTimeUnits);
  if (!value) return std::nullopt;
  return std::chrono::microseconds(*value);
}

std::string FormatBytes(int64_t bytes) { return bytes == 0 ? "0" : Format(bytes, kByteUnits); }

std::string FormatDuration(std::chrono::microseconds duration) {
  return duration.count() == 0 ? "0" : Format(duration.count(), kTimeUnits);
}

}  // namespace castor::server
