// How a server's answers are shown: aligned "name  value" tables and JSON.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/kernel.pb.h"
#include "castor/v1/report.pb.h"
#include "client/cli/text.h"

namespace castor::cli {

using Json = nlohmann::ordered_json;

// Rows of a two-column table.
using Rows = std::vector<std::pair<std::string, std::string>>;
std::string FormatRows(const Rows& rows);

// A table with a header; columns are as wide as their widest cell. Cells may hold what a server
// wrote: each stays on its line (client::CleanLine).
std::string FormatTable(std::vector<std::vector<std::string>> cells);

std::string FormatBytes(int64_t bytes);  // "12.0 MiB"
std::string FormatReal(double value, const char* format = "%.3g");

// "vanilla", "improved_clustered".
std::string KernelText(v1::KernelName name);

// A message as protobuf's JSON (64-bit integers are strings in it), with the contract's field
// names.
Json ToJson(const google::protobuf::Message& message);

// Indented, with a newline; what a terminal would obey is escaped, as JSON allows: \u009b.
std::string JsonText(const Json& json);

// Kernel, batch, times and memory of an answer; `round_trip_us` as this program measured it.
void AppendReports(const v1::KernelReport& kernel, const v1::Timing& timing,
                   const v1::BatchReport& batch, const v1::MemoryReport& memory,
                   double round_trip_us, Rows* rows);

}  // namespace castor::cli
