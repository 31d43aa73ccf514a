// The steps in which heads compute: rows of any number go by, and only one step's are in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/run_control.h"
#include "engine/encoder/network/layers.h"

namespace castor::encoder {

inline constexpr int64_t kMostHeadRows = 2048;

// Of a step through matrices of `weights` elements. Does not depend on the batch.
inline int64_t HeadRows(const at::Tensor& rows, int64_t weights) {
  return std::min(kMostHeadRows, RowsOfAStep(rows, std::max<int64_t>(1, weights)));
}

// Calls run(first, count) for all of `rows`, `step` at a time, with a checkpoint after each.
template <typename Run>
absl::Status InSteps(int64_t rows, int64_t step, RunControl& control, Run&& run) {
  for (int64_t first = 0; first < rows; first += step) {
    run(first, std::min(step, rows - first));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace castor::encoder
