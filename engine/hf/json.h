// JSON as Python's json reads it: the last of repeated keys counts, and NaN, Infinity and -Infinity
// are allowed. These become strings.
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

// Copies and frees an error text of the Rust library.
inline std::string TakeError(char* error) {
  std::string text = error;
  castor_hf_free_error(error);
  return text;
}

}  // namespace castor::hf
