// Workloads as TOML; example.toml shows every key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/load/workload/workload.h"

namespace castor::load {

// Every value is checked, every unknown key refused. Throws cli::UsageError, which begins with
// `name`, the line and the key: "load.toml, line 12: class 'short': weight must be ...".
Workload ParseWorkload(const std::string& toml, const std::string& name);

// A whole file, at most 16 MiB. Throws cli::UsageError.
std::string ReadText(const std::string& file);

// Reads a kernel's parameters as the command line's flags take them: "--kernel=clustered",
// "--clusters=100". Values that `kernel` has stay unless a flag sets them. Throws CLI::Error.
void ReadKernelFlags(const std::vector<std::string>& arguments, cli::KernelFlags* kernel);

// A workload with every key and comments: what `castor-load example` prints.
std::string_view ExampleToml();

}  // namespace castor::load
