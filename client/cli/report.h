// Text for terminals: numbers, aligned tables, and JSON.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "castor/v1/kernel.pb.h"
#include "castor/v1/report.pb.h"
#include "client/utf8.h"

namespace castor::cli {

// Numbers as text, with three significant digits.
std::string TimeText(double nanoseconds);  // "<1 us", "840 us", "12.4 ms", "1.24 s"
std::string ClockText(double seconds);     // "1:18", "1:02:03"
std::string CountText(int64_t count);      // "1,234,567"
std::string RateText(double per_second);   // "0.500", "12.3", "4,980"
std::string ShortText(double value);       // "0", "0.25", "12.3", "4.98k", "1.23M"
std::string ShortCount(double count);      // whole numbers: "0", "12", "1,024", "1.05M"

// A text's number of tokens: "12", "256 (cut)".
std::string TokensText(int64_t tokens, bool cut);
// How many of many texts were truncated to fit the model.
struct TruncationCount {
  size_t all = 0, truncated = 0;
  std::string places;  // the first ten that were truncated: "[0], [7]"

  void Add(bool is_truncated);
  std::string Text(const std::string& what) const;  // "2 of 3 inputs"
};

using client::CleanText;

// CleanLine, shortened to `cells` columns of a terminal and ended by an ellipsis. Where terminals
// differ on a character's width, the greater counts, so the text never takes more columns.
std::string FitText(std::string_view text, size_t cells);
size_t CellsOf(std::string_view text);

using Json = nlohmann::ordered_json;

// Rows of a two-column table.
using Rows = std::vector<std::pair<std::string, std::string>>;
std::string FormatRows(const Rows& rows);

// A table whose columns are as wide as their widest cell. Cells may hold a server's text: each is
// made a clean line.
std::string FormatTable(std::vector<std::vector<std::string>> cells);

std::string FormatBytes(int64_t bytes);  // "12.0 MiB"
std::string FormatReal(double value, const char* format = "%.3g");

// "vanilla", "improved_clustered".
std::string KernelText(v1::KernelName name);

// A message as protobuf's JSON, whose 64-bit integers are strings, with the contract's field names.
Json ToJson(const google::protobuf::Message& message);

// Indented, with a newline; control characters are escaped: \u009b.
std::string JsonText(const Json& json);

// Appends an answer's kernel, batch, times and memory, and the round trip measured here.
void AppendReports(const v1::KernelReport& kernel, const v1::Timing& timing,
                   const v1::BatchReport& batch, const v1::MemoryReport& memory,
                   double round_trip_us, Rows* rows);

}  // namespace castor::cli
