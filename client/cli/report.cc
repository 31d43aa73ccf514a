#include "client/cli/report.h"

#include <absl/strings/ascii.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

#include "client/cli/attend/kernel_flags.h"
#include "client/utf8.h"

namespace castor::cli {
namespace {

// REQUIRES: clean text.
std::string Padded(const std::string& text, size_t width) {
  const size_t own = CellsOf(text);
  return own >= width ? text : text + std::string(width - own, ' ');
}

// The parameters in a KernelReport or RejectedKernel: " (clusters=100,iterations=10)".
std::string Parameters(const google::protobuf::Message& report) {
  const auto* const which = report.GetDescriptor()->FindOneofByName("parameters");
  const auto* const field = report.GetReflection()->GetOneofFieldDescriptor(report, which);
  if (field == nullptr) return "";
  const std::string text = ParametersText(report.GetReflection()->GetMessage(report, field));
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

std::string FormatRows(const Rows& rows) {
  std::vector<std::vector<std::string>> cells;
  for (const auto& [name, value] : rows) cells.push_back({name, value});
  return FormatTable(std::move(cells));
}

std::string FormatTable(std::vector<std::vector<std::string>> cells) {
  std::vector<size_t> widths;
  for (auto& row : cells) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = client::CleanLine(row[i]);
      widths[i] = std::max(widths[i], CellsOf(row[i]));
    }
  }
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += Padded(row[i], widths[i] + 2);
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string FormatBytes(int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return FormatReal(value, unit == 0 ? "%.0f " : "%.1f ") + units[unit];
}

std::string FormatReal(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string KernelText(v1::KernelName name) {
  return absl::AsciiStrToLower(v1::KernelName_Name(name));
}

Json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return nullptr;
  return Json::parse(text, nullptr, false);
}

std::string JsonText(const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::string escaped;
  escaped.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const client::Character character = client::FirstOf(rest);
    rest.remove_prefix(character.bytes.size());
    if (character.code < 0x7f || !client::IsControl(character.code)) {
      escaped += character.bytes;
      continue;
    }
    char code[16];  // only JSON strings contain control characters
    std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(character.code));
    escaped += code;
  }
  return escaped;
}

void AppendReports(const v1::KernelReport& kernel, const v1::Timing& timing,
                   const v1::BatchReport& batch, const v1::MemoryReport& memory,
                   double round_trip_us, Rows* rows) {
  rows->emplace_back("kernel", KernelText(kernel.name()) + Parameters(kernel) + " on " +
                                   kernel.device() + " by " + kernel.backend());
  for (const v1::RejectedKernel& rejected : kernel.rejected()) {
    rows->emplace_back("rejected", KernelText(rejected.name()) + Parameters(rejected) + " after " +
                                       TimeText(1000 * rejected.measured_us()) +
                                       ": relative error about " +
                                       FormatReal(rejected.relative_error(), "%.2e"));
  }
  if (kernel.predicted_us() > 0) {
    rows->emplace_back("cost model", "predicted " + TimeText(1000 * kernel.predicted_us()) +
                                         ", measured " + TimeText(1000 * kernel.measured_us()) +
                                         " for the batch");
  }
  if (batch.cached())
    rows->emplace_back("cached", "the answer of an earlier, equal request: nothing ran");
  rows->emplace_back("batch", std::to_string(batch.requests()) +
                                  (batch.requests() == 1 ? " request, " : " requests, ") +
                                  std::to_string(batch.tokens()) + " tokens, " +
                                  std::to_string(batch.padded_tokens()) + " padded");
  rows->emplace_back("server time", TimeText(1000 * timing.total_us()) + ": decode " +
                                        TimeText(1000 * timing.decode_us()) + ", queue " +
                                        TimeText(1000 * timing.queue_us()) + ", copy in " +
                                        TimeText(1000 * timing.copy_in_us()) + ", compute " +
                                        TimeText(1000 * timing.compute_us()) + ", copy out " +
                                        TimeText(1000 * timing.copy_out_us()));
  rows->emplace_back("round trip", TimeText(1000 * round_trip_us));
  rows->emplace_back("memory", FormatBytes(memory.workspace_bytes()) + " for the batch, " +
                                   FormatBytes(memory.peak_bytes()) + " at the engine's peak");
}

using client::Character;
using client::FirstOf;

namespace {

std::string ThreeDigits(double value) {
  // The bounds consider rounding, so that 9.996 reads 10.0 and not 10.00.
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

// Two where some terminal takes two, otherwise one, even for combining marks.
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
  if (size < 1e3) return "<1 us";  // the resolution of histograms
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

std::string TokensText(int64_t tokens, bool cut) {
  return std::to_string(tokens) + (cut ? " (cut)" : "");
}

void TruncationCount::Add(bool is_truncated) {
  const std::string place = truncated == 10 ? "..." : "[" + std::to_string(all) + "]";
  if (is_truncated && truncated++ <= 10) places += (places.empty() ? "" : ", ") + place;
  ++all;
}

std::string TruncationCount::Text(const std::string& what) const {
  return std::to_string(truncated) + " of " + std::to_string(all) + " " + what;
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
