// LayerNorm or RMSNorm of rows, or of their sum with a residual connection.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/kernels/cpu/linear/norm.h"

namespace castor::encoder {

enum class NormKind {
  kLayerNorm,
  kRmsNorm,
  kRmsNormLessOne,  // the checkpoint stores the weight less one
};

class LayerNorm {
 public:
  LayerNorm() = default;

  // weight: [hidden]. bias: [hidden], or undefined. Both are float32 or bfloat16, on the device.
  // An RMSNorm has no bias.
  LayerNorm(at::Tensor weight, at::Tensor bias, double epsilon,
            NormKind kind = NormKind::kLayerNorm);

  int64_t size() const { return weight_.size(0); }  // of a row

  at::Tensor operator()(const at::Tensor& x) const;  // [rows, hidden]

  // `out` = norm(x + residual), all [rows, hidden] and contiguous. `out` may be either; `x` is
  // overwritten.
  void AddNorm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& out) const;

  // The same in place of `x`, which it returns.
  at::Tensor AddNorm(at::Tensor x, const at::Tensor& residual) const {
    AddNorm(x, residual, x);
    return x;
  }

 private:
  // The norm of `x` by LibTorch, without a kernel.
  at::Tensor NormByLibTorch(const at::Tensor& x) const;

  // out = norm(x + residual), or norm(x) if there is none. Requires a kernel.
  void Run(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& out) const;

  const kernels::NormKernel* kernel_ = nullptr;  // null: LibTorch's
  at::Tensor weight_;                            // float32 with a kernel
  at::Tensor bias_;                              // the same, or undefined
  double epsilon_ = 0;
  NormKind kind_ = NormKind::kLayerNorm;
};

}  // namespace castor::encoder
