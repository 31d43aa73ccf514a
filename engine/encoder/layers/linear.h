// A linear layer: y = activation(x W^T + bias).
//
// On a CPU with wide enough vectors, the weights are packed once for kernels/cpu/linear/linear.h.
// Elsewhere the product is at::linear.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/base/aligned.h"
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

class Linear {
 public:
  Linear() = default;

  // weight: [out, in]. bias: [out], or undefined. Both are float32 or bfloat16, on the device.
  // `int8`: products of 8 bits, with a scale per output for weights and a scale and a zero per row
  // for inputs. Requires HasInt8 and float32 weights.
  Linear(at::Tensor weight, at::Tensor bias, bool int8 = false);

  // Whether this processor has a kernel for 8 bits.
  static bool HasInt8(at::Device device);

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  int64_t elements() const { return in_ * out_; }  // of the weights

  // The bytes that a product allocates per row, without the result.
  int64_t scratch_bytes_of_row() const;

  // [rows, in] -> [rows, out], in the weights' dtype.
  at::Tensor operator()(const at::Tensor& x,
                        std::optional<Activation> activation = std::nullopt) const;

  // Some of the outputs: `parts`, one after another. The first output of each part is a multiple of
  // column_grain().
  at::Tensor Part(const at::Tensor& x, std::span<const Columns> parts) const;
  int64_t column_grain() const { return kernel_ == nullptr ? 1 : kernel_->panel_width; }

 private:
  // Requires a kernel. Columns of a packed matrix are a packed matrix too.
  kernels::PackedMatrix Matrix(const Columns& columns) const;
  at::Tensor Product(const at::Tensor& x, std::span<const Columns> parts,
                     kernels::Activation activation) const;

  int64_t in_ = 0;
  int64_t out_ = 0;
  const kernels::LinearKernel* kernel_ = nullptr;  // null: at::linear
  at::Tensor weight_;                              // [out, in], without a kernel
  at::Tensor bias_;                                // [out], or undefined; float32 with a kernel
  AlignedArray<uint32_t> packed_;                  // with a kernel
  AlignedArray<float> scales_;                     // int8: see kernels::PackedMatrix
  AlignedArray<int32_t> sums_;
};

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
