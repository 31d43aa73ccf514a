// The building blocks of families' layers. They compute on packed rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/run_control.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/layers/layer_norm.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/network/body.h"

namespace castor::encoder {

// The number of rows that go through matrices of `weights` elements in one step: on a CPU at most
// about 40 ms of work for one core, elsewhere all rows.
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

// These take the weights `name` + ".weight" and, with a bias, ".bias"; errors go to the reader.
// TakeStackedLinear stacks several matrices of out[i] rows each along their rows. TakeLinearHalves
// splits a matrix of 2 * `out` rows in two.
// All take the adapters of these matrices too.
Linear TakeLinear(WeightReader& weights, const std::string& name, int64_t out, int64_t in,
                  bool bias = true);
Linear TakeStackedLinear(WeightReader& weights, std::span<const std::string> names,
                         std::span<const int64_t> out, int64_t in, bool bias = true);
std::array<Linear, 2> TakeLinearHalves(WeightReader& weights, const std::string& name, int64_t out,
                                       int64_t in, bool bias = true);

// The same for a norm; an RMSNorm has no bias.
LayerNorm TakeNorm(WeightReader& weights, const std::string& name, int64_t hidden, double epsilon,
                   bool bias = true, NormKind kind = NormKind::kLayerNorm);

// A task's adapter of a table of embeddings: b(rows[id]) is added to the row of `id`.
struct TableAdapter {
  at::Tensor rows;  // [words, rank]
  Linear b;         // [hidden, rank]

  bool empty() const { return !rows.defined(); }
};

// The adapters of the table `name`, [rows, hidden], by task; empty if no task has one.
std::vector<TableAdapter> TakeTableAdapters(WeightReader& weights, const std::string& name,
                                            int64_t rows, int64_t hidden);

// Adds to the rows of `x` what their tasks' adapters have for `ids`.
void AddTableRows(const std::vector<TableAdapter>& adapters, const at::Tensor& ids,
                  const TaskRows& tasks, const at::Tensor& x);

// [tokens, hidden]: the rows of `table`, with its adapters', for the batch's ids, or the embeddings
// that an item brings.
at::Tensor TokenRows(const at::Tensor& table, const BodyInputs& in,
                     const std::vector<TableAdapter>& adapters = {});

// The type of weights and so of rows: float32 or bfloat16.
DType TypeOf(const at::Tensor& rows);

}  // namespace castor::encoder
