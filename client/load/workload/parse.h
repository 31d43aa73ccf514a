// Workloads as TOML; example.toml shows every key.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

#include "client/load/workload/workload.h"

namespace castor::load {

// Checks every value, and refuses unknown keys. Throws cli::UsageError that begins with `name`, the
// line and the key: "load.toml, line 12: class 'short': weight must be ...".
Workload ParseWorkload(const toml::table& toml, const std::string& name);

// Parses TOML. Throws cli::UsageError.
toml::table ParseToml(const std::string& text, const std::string& name);

// Reads a whole file, at most 16 MiB. Throws cli::UsageError.
std::string ReadText(const std::string& file);

// The workload of `castor-load example`, with every key and comments.
std::string_view ExampleToml();

}  // namespace castor::load
