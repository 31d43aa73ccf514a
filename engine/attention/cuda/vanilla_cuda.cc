#include "engine/attention/cuda/vanilla_cuda.h"

#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "engine/attention/cuda/tensors.h"

namespace castor::attention::cuda {
namespace {

// Cuts off the columns that AlignedRows added; no copy if there are none.
at::Tensor FirstColumns(const at::Tensor& output, int64_t dim) {
  return output.narrow(-1, 0, dim).contiguous();
}

// Keys or values [tokens, heads, dim], once for each head that reads them.
at::Tensor ForEachHead(const Spec& spec, const at::Tensor& rows) {
  if (spec.group() == 1) return rows;
  return rows.unsqueeze(2)
      .expand({rows.size(0), spec.kv_heads, spec.group(), rows.size(2)})
      .reshape({rows.size(0), spec.heads, rows.size(2)});
}

}  // namespace

at::Tensor FlashAttention(const Spec& spec, const Sequences& s) {
  // One dim for query, key and value, a multiple of 8.
  const int64_t dim = AlignedDim(std::max(spec.head_dim, spec.value_dim), spec.dtype);
  const at::Device device = s.query.device();
  // If the longest sequence has one query, the kernel would split the keys of heads that share
  // them, and compute the query in another order than in a batch with longer sequences.
  const int64_t longest = LongestSequence(s.cu_seqlens_q, s.first, s.count);
  const int64_t most_queries = spec.group() == 1 ? longest : std::max<int64_t>(2, longest);
  // Queries without places of their own end where keys do, as this kernel's causal mask and window
  // expect.
  const auto bound = [](int64_t keys) { return std::min<int64_t>(keys, INT32_MAX); };
  const auto result = at::_flash_attention_forward(
      AlignedRows(s.query, dim), AlignedRows(s.key, dim), AlignedRows(s.value, dim),
      UploadOffsets(s.cu_seqlens_q, s.first, s.count, device),
      UploadOffsets(s.cu_seqlens_k, s.first, s.count, device), most_queries,
      LongestSequence(s.cu_seqlens_k, s.first, s.count), /*dropout_p=*/0.0, IsCausal(spec),
      /*return_debug_mask=*/false, /*scale=*/spec.softmax_scale,
      /*window_size_left=*/bound(spec.window.left), /*window_size_right=*/bound(spec.window.right));
  return FirstColumns(std::get<0>(result), spec.value_dim);
}

at::Tensor EfficientAttention(const Spec& spec, const Sequences& s) {
  constexpr int64_t kNoMask = 0;
  constexpr int64_t kCausalFromBottomRight = 2;
  const int64_t head_dim = AlignedDim(spec.head_dim, spec.dtype);
  const int64_t value_dim = AlignedDim(spec.value_dim, spec.dtype);
  const at::Device device = s.query.device();
  // LibTorch's own alignment check looks at the strides only; AlignedRows also aligns the base.
  const auto result = at::_efficient_attention_forward(
      AlignedRows(s.query, head_dim).unsqueeze(0),
      AlignedRows(ForEachHead(spec, s.key), head_dim).unsqueeze(0),
      AlignedRows(ForEachHead(spec, s.value), value_dim).unsqueeze(0), /*bias=*/std::nullopt,
      UploadOffsets(s.cu_seqlens_q, s.first, s.count, device),
      UploadOffsets(s.cu_seqlens_k, s.first, s.count, device),
      LongestSequence(s.cu_seqlens_q, s.first, s.count),
      LongestSequence(s.cu_seqlens_k, s.first, s.count), /*dropout_p=*/0.0,
      IsCausal(spec) ? kCausalFromBottomRight : kNoMask, /*compute_log_sumexp=*/false,
      /*scale=*/spec.softmax_scale);
  return FirstColumns(std::get<0>(result).squeeze(0), spec.value_dim);
}

}  // namespace castor::attention::cuda
