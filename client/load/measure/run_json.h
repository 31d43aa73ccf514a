// A saved run: RunData as JSON that loses nothing, so that saved runs merge and compare as if they
// had just ended, with figures beside it for those who read it with jq. run.schema.json describes
// the format.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "client/load/measure/run_data.h"

namespace castor::load {

struct Verdict;  // judge/verdict.h

// Tokens in `workload_toml` are replaced (redact.h): this is the one place where runs are turned
// into what is saved or sent on. The verdict's findings are written when it is given.
nlohmann::ordered_json ToJson(const RunData& run, const Verdict* verdict = nullptr);

// The JSON's text, one histogram or list of numbers a line. Bytes that are no UTF-8 are replaced.
std::string FormatRun(const nlohmann::ordered_json& run);

// Reads what ToJson wrote; the figures made from it ("summary", "verdict") are not read. Throws
// std::runtime_error that names the field, whatever the JSON is: "cells[0][1].good must be ...".
RunData FromJson(const nlohmann::ordered_json& json);

// JSON's text and ToJson's form in one. The text's nesting, size and number of values are bounded.
RunData ParseRun(std::string_view text);

// Throw std::runtime_error that names the file.
void SaveRun(const std::string& path, const RunData& run, const Verdict* verdict = nullptr);
RunData LoadRun(const std::string& path);

// run.schema.json, JSON Schema draft 2020-12.
std::string_view RunSchema();

}  // namespace castor::load
