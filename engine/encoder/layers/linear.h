// A linear layer: y = activation(x W^T + bias). Rows with a task may add their task's adapter, of
// low rank (LoRA; Hu et al. 2021, arXiv 2106.09685), before the activation: x A^T B^T.
//
// On a CPU with wide enough vectors, the weights are packed once for kernels/cpu/linear/linear.h.
// Elsewhere the product is at::linear.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/encoder/network/packing.h"
#include "engine/kernels/cpu/linear/linear.h"

namespace castor::encoder {

// ---- the activation functions of configs

enum class Activation { kGeluErf, kGeluTanh, kQuickGelu, kRelu, kSilu, kTanh, kMish };

// nullopt for an unknown name. "gelu" is the exact form with erf.
std::optional<Activation> ParseActivation(std::string_view name);

// Overwrites `x`, which it returns.
at::Tensor Activate(Activation activation, at::Tensor x);

// ---- the layer

// A range of adjacent outputs.
struct Columns {
  int64_t first = 0;
  int64_t count = 0;
};

struct Adapter;

class Linear {
 public:
  Linear() = default;

  // weight: [out, in]. bias: [out], or undefined. Both are float32 or bfloat16, on the device.
  // `int8`: products of 8 bits, with a scale per output for weights and a scale and a zero per row
  // for inputs. Requires HasInt8 and float32 weights.
  Linear(at::Tensor weight, at::Tensor bias, bool int8 = false);

  // Of each task; those of tasks that leave this layer alone are empty. Call once, at load.
  void set_adapters(std::vector<Adapter> adapters);

  // Whether this processor has a kernel for 8 bits.
  static bool HasInt8(at::Device device);

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  int64_t elements() const { return in_ * out_; }  // of the weights

  // The bytes that a product allocates per row, without the result.
  int64_t scratch_bytes_of_row() const;

  // [rows, in] -> [rows, out], in the weights' dtype. `tasks`: of these rows.
  at::Tensor operator()(const at::Tensor& x, std::optional<Activation> activation = std::nullopt,
                        const TaskRows& tasks = {}) const;

  // Some of the outputs: `parts`, one after another. The first output of each part is a multiple of
  // column_grain().
  at::Tensor Part(const at::Tensor& x, std::span<const Columns> parts,
                  const TaskRows& tasks = {}) const;
  int64_t column_grain() const;

  // Adds the product without a task to `y`, [rows, out].
  void AddTo(const at::Tensor& x, const at::Tensor& y) const;

 private:
  // Requires a kernel. Columns of a packed matrix are a packed matrix too.
  kernels::PackedMatrix Matrix(const Columns& columns) const;
  at::Tensor Product(const at::Tensor& x, std::span<const Columns> parts,
                     kernels::Activation activation, const TaskRows& tasks) const;
  void ProductInto(const at::Tensor& x, std::span<const Columns> parts,
                   kernels::Activation activation, const Adapter* adapter, bool add,
                   const at::Tensor& y) const;

  int64_t in_ = 0;
  int64_t out_ = 0;
  const kernels::LinearKernel* kernel_ = nullptr;  // null: at::linear
  at::Tensor weight_;                              // [out, in], without a kernel
  at::Tensor bias_;                                // [out], or undefined; float32 with a kernel
  AlignedArray<uint32_t> packed_;                  // with a kernel
  AlignedArray<float> scales_;                     // int8: see kernels::PackedMatrix
  AlignedArray<int32_t> sums_;
  std::vector<Adapter> adapters_;  // by task; empty: no task has one here
};

struct Adapter {
  Linear a;  // [rank, in]
  Linear b;  // [out, rank], its scale included

  bool empty() const { return a.out() == 0; }
};

// Calls run(first, count, adapter) for the `rows` rows of `tasks` in order, as many at a time as
// have the same one of `adapters`, which are by task, or none: null.
template <typename Adapted, typename Run>
void ForAdapters(const TaskRows& tasks, int64_t rows, const std::vector<Adapted>& adapters,
                 Run&& run) {
  const auto of = [&](const TaskRun& each) -> const Adapted* {
    if (each.task < 0 || adapters.empty()) return nullptr;
    const Adapted& adapter = adapters[static_cast<size_t>(each.task)];
    return adapter.empty() ? nullptr : &adapter;
  };
  auto at = tasks.runs.begin();
  while (at != tasks.runs.end() && at->end <= tasks.first) ++at;
  for (int64_t first = 0, end = 0; first < rows; first = end) {
    const Adapted* const adapter = at == tasks.runs.end() ? nullptr : of(*at);
    end = rows;
    for (; at != tasks.runs.end() && of(*at) == adapter; ++at) end = at->end - tasks.first;
    end = std::min(end, rows);
    run(first, end - first, adapter);
  }
}

// Weights in 8 bits: the nearest multiples of a scale per output. The scale is the least that takes
// no weight beyond 127 and keeps the kernel's sums exact. Any thread.
struct Weights8 {
  AlignedArray<int8_t> values;  // [out, in], in [-127, 127]
  AlignedArray<float> scales;   // [padded]; 1 for outputs of zeros and for padding
  AlignedArray<int32_t> sums;   // [padded]: the sum of an output's values
};

// weight: [out, in], float32, contiguous, on the host. `kernel`: one for int8, whose panels hold
// `padded` outputs.
Weights8 QuantizeWeights(const at::Tensor& weight, const kernels::LinearKernel& kernel);

}  // namespace castor::encoder
