// The configuration file: TOML 1.0, read whole and checked for form. options.h knows what its keys
// mean.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace castor::server {

enum class ConfigType { kString, kInteger, kFloat, kBoolean, kStrings };

std::string_view NameOf(ConfigType type);  // "a string", "true or false"

// One "key = value".
struct ConfigEntry {
  std::string key;
  ConfigType type = ConfigType::kString;
  std::vector<std::string> texts;  // as a flag would give it; of kStrings each element
  int64_t line = 0;                // counted from 1
};

// The file's entries. INVALID_ARGUMENT, with the line if there is one, for a file that is not TOML,
// for tables, sections and values of other types, for anything but a regular file (it never waits
// for a pipe), and for a file of more than 1 MiB.
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

}  // namespace castor::server
