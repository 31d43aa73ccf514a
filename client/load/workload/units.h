// Durations, shares and objectives as people write them in workloads and flags.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "client/cli/values.h"
#include "client/load/workload/workload.h"

namespace castor::load {

using cli::FormatDuration;
using cli::ParseDuration;

// "0.1%" is 0.001: a decimal number from 0 to 100.
std::optional<double> ParsePercent(std::string_view text);

// 0.999 is "p99.9".
std::string QuantileName(double quantile);

std::string_view Trimmed(std::string_view text);  // without blanks at either end

// Adds a goal such as "p99 <= 50ms" or "errors <= 0.1%" to `objective`. Throws
// std::invalid_argument whose text says what is expected, when `text` is no goal, or when the
// objective has one for the same quantile, or for errors, already.
void AddGoal(std::string_view text, Objective* objective);

}  // namespace castor::load
