// What a class must reach, as text: "p99 <= 50ms", "errors <= 0.1%".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/load/workload/workload.h"

namespace castor::load {

// Adds the goal to `objective`. Throws std::invalid_argument whose text says what is expected, when
// `text` is no goal, or when the objective has one for the same quantile, or for errors, already.
void AddGoal(std::string_view text, Objective* objective);

// The goals of an objective, which AddGoal reads.
std::vector<std::string> GoalsOf(const Objective& objective);

// 0.999 is "p99.9".
std::string QuantileName(double quantile);

}  // namespace castor::load
