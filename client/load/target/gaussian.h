// Standard normal values by the hundred million: windows of one table, at offsets drawn anew.
#pragma once

#include <cstdint>
#include <span>

#include "client/load/workload/random.h"

namespace castor::load {

// Fills `values`. Drawing each by itself would take seconds for one request of 64K tokens.
void FillGaussian(std::span<float> values, Random& random);

// The same around centres: each row of `width` values is one of `centres` plus noise, as trained
// keys and queries lie.
void FillStructured(std::span<float> values, int64_t width, int64_t centres, Random& random);

}  // namespace castor::load
