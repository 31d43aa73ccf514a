// Saves a run: RunData as JSON without loss, so that saved runs add up and compare like new ones,
// and "summary" and "verdict" for readers with jq.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "client/load/results/run_data.h"
#include "client/load/results/verdict.h"

namespace castor::load {

using Json = nlohmann::json;

// Latencies in milliseconds, rates and outcomes, in total and by class.
Json SummaryOf(const RunData& run);

// The whole as text. Bytes that are not UTF-8 are replaced.
std::string FormatRun(const RunData& run, const Verdict& verdict);

// Parses FormatRun's text, without "summary" and "verdict". For any other text it throws
// std::runtime_error that names the field: "(/cells/0/1/good) must be ...".
RunData ParseRun(std::string_view text);

// Parses a file, which the errors name.
RunData LoadRun(const std::string& path);

}  // namespace castor::load
