// Typed reading of a JSON object of a model directory, with errors that name the file and the key.
// Only keys that directory_keys.cc lists as read can be read.
//
// The first error sticks: read everything, then check status(). After an error the values returned
// are the fallbacks.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/encoder/directory/directory_keys.h"

namespace castor::encoder {

class ConfigReader {
 public:
  // `json` must be an object, whose keys are checked; `path` is its file.
  ConfigReader(File file, nlohmann::json json, std::string path);

  const nlohmann::json& json() const { return json_; }
  const std::string& path() const { return path_; }
  const absl::Status& status() const { return status_; }

  // Present and not null.
  bool Has(std::string_view key) const;

  // Present, and null.
  bool IsNull(std::string_view key) const;

  // The number of entries of the object or list at `key`; 0 when it is missing or null.
  size_t Count(std::string_view key) const;

  // The names in the object, or the strings of the list, at `key`; none when it is missing or null.
  // A key may lead into objects: "rope_parameters.full_attention".
  std::vector<std::string> Keys(std::string_view key);
  std::vector<std::string> Strings(std::string_view key);

  // The strings of an object, by name, in order of name; none when the key is missing or null. A
  // null string is empty.
  std::vector<std::pair<std::string, std::string>> StringsByName(std::string_view key);

  // The value, or `fallback` when the key is missing or null.
  int64_t Int(std::string_view key, int64_t fallback, int64_t min, int64_t max);
  double Double(std::string_view key, double fallback, double min, double max);
  bool Bool(std::string_view key, bool fallback);
  std::string String(std::string_view key, std::string_view fallback);

  // A name that may be a number, formatted as by Python's str().
  std::string Label(std::string_view key, std::string_view fallback);

  // Records an error at `key`, unless there is one already.
  void Fail(std::string_view key, std::string_view problem);

 private:
  const nlohmann::json* Lookup(std::string_view key) const;  // null included
  const nlohmann::json* Find(std::string_view key) const;

  const File file_;
  const nlohmann::json json_;
  const std::string path_;
  absl::Status status_;
};

// Reads `path`. NOT_FOUND when there is no such file.
absl::StatusOr<ConfigReader> ReadConfig(File file, const std::string& path);

}  // namespace castor::encoder
