// JSON files, read strictly: an object with a duplicate key is refused, since readers disagree on
// which entry counts.
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
