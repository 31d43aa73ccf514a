// JSON files as Python's json reads them: of a repeated key the last one counts, and NaN, Infinity
// and -Infinity are no errors. Those come as strings.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "engine/hf/castor_hf.h"

namespace castor::hf {

// Reads and parses `path`. NOT_FOUND when there is no such file; errors name the file.
absl::StatusOr<nlohmann::json> ReadJson(const std::string& path);

// Parses `text`; `name` stands for it in errors.
absl::StatusOr<nlohmann::json> ParseJson(const std::string& text, const std::string& name);

// Error texts that the Rust library hands over.

// Copies and frees `error`.
inline std::string TakeError(char* error) {
  std::string text = error;
  castor_hf_free_error(error);
  return text;
}

}  // namespace castor::hf
