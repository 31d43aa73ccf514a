// A saved run: RunData as JSON that loses nothing, so that saved runs add up and compare as if they
// had just ended, with "summary" and "verdict" beside it for those who read it with jq.
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

// The whole as text. Bytes that are no UTF-8 are replaced.
std::string FormatRun(const RunData& run, const Verdict& verdict);

// Reads what FormatRun wrote; "summary" and "verdict" are not read. Throws std::runtime_error that
// names the field, whatever the text is: "(/cells/0/1/good) must be ...".
RunData ParseRun(std::string_view text);

// The same of a file, which the errors name.
RunData LoadRun(const std::string& path);

}  // namespace castor::load
