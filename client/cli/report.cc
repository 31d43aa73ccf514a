#include "client/cli/report.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "client/cli/attend/kernel_flags.h"
#include "client/cli/text.h"
#include "client/utf8.h"

namespace castor::cli {
namespace {

// Requires clean text.
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
  std::string text = v1::KernelName_Name(name);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
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
    char code[16];  // outside of strings JSON has nothing like it
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

}  // namespace castor::cli
