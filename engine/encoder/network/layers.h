// The layers that families are made of. They compute on packed rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "engine/base/run_control.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/layers/activation.h"
#include "engine/encoder/layers/layer_norm.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/network/body.h"

namespace castor::encoder {

// The number of rows that go through matrices of `weights` elements in one step. On a CPU that is
// at most about 40 ms of work for one core; elsewhere it is all rows.
int64_t RowsOfAStep(const at::Tensor& x, int64_t weights);

// Calls run(first, count) for all of `rows`, `step` at a time, with a checkpoint after each.
template <typename Run>
absl::Status InSteps(int64_t rows, int64_t step, RunControl& control, Run&& run) {
  for (int64_t first = 0; first < rows; first += step) {
    run(first, std::min(step, rows - first));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Take the weights that a checkpoint keeps under `name` + ".weight" and, with a bias, ".bias";
// errors go to the reader. TakeStackedLinear stacks several, of out[i] rows each, along their rows;
// TakeLinearHalves makes two of one with twice as many outputs.
Linear TakeLinear(WeightReader& weights, const std::string& name, int64_t out, int64_t in,
                  bool bias = true);
Linear TakeStackedLinear(WeightReader& weights, std::span<const std::string> names,
                         std::span<const int64_t> out, int64_t in, bool bias = true);
std::array<Linear, 2> TakeLinearHalves(WeightReader& weights, const std::string& name, int64_t out,
                                       int64_t in, bool bias = true);

// The same for a norm; an RMSNorm has no bias.
LayerNorm TakeNorm(WeightReader& weights, const std::string& name, int64_t hidden, double epsilon,
                   bool bias = true, NormKind kind = NormKind::kLayerNorm);

// [tokens, hidden]: the rows of `table` for the batch's ids, or an item's own embeddings if it
// brings them.
at::Tensor TokenRows(const at::Tensor& table, const BodyInputs& in);

// float32 or bfloat16: what weights, and so rows, are served in.
DType TypeOf(const at::Tensor& rows);

}  // namespace castor::encoder
