// The configuration file: TOML 1.0, read whole and checked for form. What its keys mean is the
// business of options.h.
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
  std::vector<std::string> texts;  // as a flag would bring it; of kStrings each element
  int64_t line = 0;                // counted from 1
};

// The file's entries. INVALID_ARGUMENT, with the line where there is one, for what is no TOML, for
// tables and sections, and for values of other types; for what is no regular file (nothing waits
// for a pipe), and for a file of more than 1 MiB.
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

}  // namespace castor::server
