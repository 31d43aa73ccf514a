// JSON files as Python's json reads them: of a repeated key the last one counts, and NaN, Infinity
// and -Infinity are no errors. Those come as strings.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace castor::hf {

// Reads and parses `path`. NOT_FOUND when there is no such file; errors name the file.
absl::StatusOr<nlohmann::json> ReadJson(const std::string& path);

// Parses `text`; `name` stands for it in errors.
absl::StatusOr<nlohmann::json> ParseJson(const std::string& text, const std::string& name);

}  // namespace castor::hf
