// Workloads as TOML; example.toml shows every key.
#pragma once

#include <string>
#include <string_view>

#include "client/load/workload/workload.h"

namespace castor::load {

// Every value is checked, every unknown key refused. Throws cli::UsageError, which begins with
// `name`, the line and the key: "load.toml, line 12: class 'short': weight must be ...". Files that
// the workload names (lengths, tokens) are read, relative to the working directory; a trace and
// texts are not.
Workload ParseWorkload(const std::string& toml, const std::string& name);

// The workload in a file; throws the same.
Workload ReadWorkload(const std::string& file);

// TOML that parses to the same workload, for what ParseWorkload can give. The classes of a replay
// are not written: its file makes them.
std::string ToToml(const Workload& workload);

// A workload with every key and comments: what `castor-load example` prints.
std::string_view ExampleToml();

}  // namespace castor::load
