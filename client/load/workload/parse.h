// Workloads as TOML; example.toml shows every key.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

#include "client/load/workload/workload.h"

namespace castor::load {

// Every value is checked, every unknown key refused. Throws cli::UsageError, which begins with
// `name`, the line and the key: "load.toml, line 12: class 'short': weight must be ...".
Workload ParseWorkload(const toml::table& toml, const std::string& name);

// The table of a text. Throws cli::UsageError.
toml::table ParseToml(const std::string& text, const std::string& name);

// A whole file, at most 16 MiB. Throws cli::UsageError.
std::string ReadText(const std::string& file);

// A workload with every key and comments: what `castor-load example` prints.
std::string_view ExampleToml();

}  // namespace castor::load
