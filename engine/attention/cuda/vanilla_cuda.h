// Exact attention on a GPU through LibTorch's kernels.
//
// Every function computes some neighbouring sequences of a problem and returns their output rows,
// [tokens, heads, value_dim] and contiguous. The work is queued on the current stream. Called on
// the device's engine thread; may throw what LibTorch throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>

#include "engine/attention/problem.h"

namespace castor::attention::cuda {

// The sequences that one launch computes.
struct Sequences {
  at::Tensor query;                       // [query tokens, heads, head_dim], of these only
  at::Tensor key;                         // [key tokens, kv_heads, head_dim]
  at::Tensor value;                       // [key tokens, kv_heads, value_dim]
  std::span<const int32_t> cu_seqlens_q;  // of the whole problem
  std::span<const int32_t> cu_seqlens_k;
  int64_t first = 0;  // sequence of the problem
  int64_t count = 0;
  const Problem& problem;
};

// FlashAttention-2 over cu_seqlens. Requires FlashFits.
at::Tensor FlashAttention(const Spec& spec, const Sequences& sequences);

// CUTLASS's memory-efficient attention over cu_seqlens; fp32 as three TF32 products, which keeps
// fp32's accuracy. Requires EfficientFits.
at::Tensor EfficientAttention(const Spec& spec, const Sequences& sequences);

// Matrix products and softmax in fp32, in blocks of query rows: for what the others refuse. With a
// window, a block meets only keys near it. The check on a GPU compares the others with it. Returns
// the log-sum-exp too, [tokens, heads], if the spec has it.
std::pair<at::Tensor, at::Tensor> MathAttention(const Spec& spec, const Sequences& sequences);

}  // namespace castor::attention::cuda
