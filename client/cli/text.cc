#include "client/cli/text.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "client/cli/report.h"

namespace castor::cli {

using client::Character;
using client::FirstOf;

namespace {

std::string ThreeDigits(double value) {
  // By the rounded value, so that 9.996 reads 10.0 and not 10.00.
  const double size = std::abs(value);
  return FormatReal(value, size < 9.995 ? "%.2f" : size < 99.95 ? "%.1f" : "%.0f");
}

std::string WithSeparators(std::string digits) {
  const size_t first = digits.starts_with('-') ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

// Two where some terminal takes two, otherwise one, also for marks that take none.
size_t CellsOf(char32_t code) {
  constexpr struct {
    char32_t first, last;
  } kWide[] = {{0x1100, 0x115f}, {0x231a, 0x231b},   {0x2e80, 0xa4cf},  {0xa960, 0xa97f},
               {0xac00, 0xd7a3}, {0xf900, 0xfaff},   {0xfe10, 0xfe6f},  {0xff00, 0xff60},
               {0xffe0, 0xffe6}, {0x1f000, 0x1ffff}, {0x20000, 0x3fffd}};
  return std::any_of(
             std::begin(kWide), std::end(kWide),
             [code](const auto& range) { return code >= range.first && code <= range.last; })
             ? 2
             : 1;
}

}  // namespace

std::string TimeText(double nanoseconds) {
  const double size = std::abs(nanoseconds);
  if (size == 0) return "0";
  if (size < 1e3) return "<1 us";  // histograms do not tell more
  if (size < 1e6 - 500) return ThreeDigits(nanoseconds / 1e3) + " us";
  if (size < 1e9 - 5e5) return ThreeDigits(nanoseconds / 1e6) + " ms";
  return ThreeDigits(nanoseconds / 1e9) + " s";
}

std::string ClockText(double seconds) {
  const auto whole = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e15));
  const auto two = [](int64_t value) { return (value < 10 ? "0" : "") + std::to_string(value); };
  const std::string rest = ":" + two(whole % 60);
  return whole < 3600 ? std::to_string(whole / 60) + rest
                      : std::to_string(whole / 3600) + ":" + two(whole / 60 % 60) + rest;
}

std::string CountText(int64_t count) { return WithSeparators(std::to_string(count)); }

std::string RateText(double per_second) {
  if (per_second == 0) return "0";
  if (std::abs(per_second) < 0.9995) return FormatReal(per_second, "%.3g");
  const std::string text = ThreeDigits(per_second);
  return text.find('.') == std::string::npos ? WithSeparators(text) : text;
}

std::string ShortText(double value) {
  constexpr const char* kSteps[] = {"", "k", "M", "G", "T", "P"};
  size_t step = 0;
  while (std::abs(value) >= 999.5 && step + 1 < std::size(kSteps)) {
    value /= 1000;
    ++step;
  }
  return (value == 0 ? "0" : ThreeDigits(value)) + kSteps[step];
}

std::string ShortCount(double count) {
  return std::abs(count) < 1e5 ? CountText(std::llround(count)) : ShortText(count);
}

size_t CellsOf(std::string_view text) {
  size_t cells = 0;
  const std::string clean = CleanText(text);
  for (std::string_view rest = clean; !rest.empty();) {
    const Character character = FirstOf(rest);
    cells += CellsOf(character.code);
    rest.remove_prefix(character.bytes.size());
  }
  return cells;
}

std::string FitText(std::string_view text, size_t cells) {
  const std::string clean = client::CleanLine(text);
  if (CellsOf(clean) <= cells) return clean;
  std::string fitted;
  size_t used = 1;  // the ellipsis
  for (std::string_view rest = clean; !rest.empty();) {
    const Character character = FirstOf(rest);
    used += CellsOf(character.code);
    if (used > cells) break;
    fitted += character.bytes;
    rest.remove_prefix(character.bytes.size());
  }
  return cells == 0 ? "" : fitted + "…";
}

}  // namespace castor::cli
