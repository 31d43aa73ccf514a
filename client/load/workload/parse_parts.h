// The parts of a workload file, for parse.cc. Each reads what it knows from a table and leaves
// RefuseOthers to the caller.
#pragma once

#include <string_view>

#include "client/load/workload/toml_table.h"
#include "client/load/workload/workload.h"

namespace castor::load {

inline constexpr int64_t kMaxTokens = int64_t{1} << 20;  // of one sequence
inline constexpr int64_t kMaxSequences = 4096;           // of one request
inline constexpr double kMaxRate = 1e7;                  // requests/s

// Leaves `length` as it is when the key is not there.
void ReadLength(TomlTable& table, std::string_view key, int64_t greatest, Length* length);

// `kernel = "clustered"`, or a table with its parameters.
void ReadKernel(TomlTable& table, cli::KernelFlags* kernel);

// [defaults]: what classes have in common.
ClassSpec ReadDefaults(TomlTable& table);

// A [[class]], on top of the defaults. `number` counts from 1.
ClassSpec ReadClass(const toml::table& table, const std::string& file, size_t number,
                    const ClassSpec& defaults);

// [load]. `each` is what the classes of a replay have in common.
decltype(Workload::load) ReadLoad(TomlTable& table, const ClassSpec& each);

}  // namespace castor::load
