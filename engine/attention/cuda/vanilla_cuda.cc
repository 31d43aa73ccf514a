#include "engine/attention/cuda/vanilla_cuda.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <variant>

#include "engine/attention/cuda/choice.h"
#include "engine/attention/cuda/tensors.h"

namespace castor::attention::cuda {
namespace {

bool IsCausal(const Spec& spec) {
  const Vanilla* vanilla = std::get_if<Vanilla>(&spec.kernel);
  return vanilla != nullptr && vanilla->causal;
}

// Cuts off the columns that AlignedRows added; no copy if there are none.
at::Tensor FirstColumns(const at::Tensor& output, int64_t dim) {
  return output.narrow(-1, 0, dim).contiguous();
}

}  // namespace

at::Tensor FlashAttention(const Spec& spec, const Sequences& s) {
  // One dim for query, key and value, a multiple of 8.
  const int64_t dim = AlignedDim(std::max(spec.head_dim, spec.value_dim), spec.dtype);
  const at::Device device = s.query.device();
  // The causal mask is aligned at the bottom right. Causal problems have equal lengths, so it is
  // the usual one.
  const auto result = at::_flash_attention_forward(
      AlignedRows(s.query, dim), AlignedRows(s.key, dim), AlignedRows(s.value, dim),
      UploadOffsets(s.cu_seqlens_q, s.first, s.count, device),
      UploadOffsets(s.cu_seqlens_k, s.first, s.count, device),
      LongestSequence(s.cu_seqlens_q, s.first, s.count),
      LongestSequence(s.cu_seqlens_k, s.first, s.count), /*dropout_p=*/0.0, IsCausal(spec),
      /*return_debug_mask=*/false, /*scale=*/spec.softmax_scale);
  return FirstColumns(std::get<0>(result), spec.value_dim);
}

at::Tensor CudnnAttention(const Spec& spec, const Sequences& s) {
  // [1, heads, tokens, dim], as a view: cuDNN takes the strides as they are.
  const auto batched = [&](const at::Tensor& rows) {
    return AlignedRows(rows, rows.size(2)).transpose(0, 1).unsqueeze(0);
  };
  const auto result = at::_scaled_dot_product_cudnn_attention(
      batched(s.query), batched(s.key), batched(s.value), /*attn_bias=*/std::nullopt,
      /*compute_log_sumexp=*/false, /*dropout_p=*/0.0, IsCausal(spec),
      /*return_debug_mask=*/false, /*scale=*/spec.softmax_scale);
  // The output has the query's layout, so this is no copy.
  return std::get<0>(result).squeeze(0).transpose(0, 1).contiguous();
}

at::Tensor EfficientAttention(const Spec& spec, const Sequences& s) {
  constexpr int64_t kNoMask = 0;
  constexpr int64_t kCausalFromBottomRight = 2;
  const int64_t head_dim = AlignedDim(spec.head_dim, spec.dtype);
  const int64_t value_dim = AlignedDim(spec.value_dim, spec.dtype);
  const at::Device device = s.query.device();
  // LibTorch's own alignment check looks at the strides only; AlignedRows also aligns the base.
  const auto result = at::_efficient_attention_forward(
      AlignedRows(s.query, head_dim).unsqueeze(0), AlignedRows(s.key, head_dim).unsqueeze(0),
      AlignedRows(s.value, value_dim).unsqueeze(0), /*bias=*/std::nullopt,
      UploadOffsets(s.cu_seqlens_q, s.first, s.count, device),
      UploadOffsets(s.cu_seqlens_k, s.first, s.count, device),
      LongestSequence(s.cu_seqlens_q, s.first, s.count),
      LongestSequence(s.cu_seqlens_k, s.first, s.count), /*dropout_p=*/0.0,
      IsCausal(spec) ? kCausalFromBottomRight : kNoMask, /*compute_log_sumexp=*/false,
      /*scale=*/spec.softmax_scale);
  return FirstColumns(std::get<0>(result).squeeze(0), spec.value_dim);
}

at::Tensor MathAttention(const Spec& spec, const Sequences& s) {
  const int32_t query_base = s.cu_seqlens_q[s.first];
  const int32_t key_base = s.cu_seqlens_k[s.first];
  // Masked scores, which are -infinity, are multiplied too, so the magnitude must not be 0, not
  // even in float32.
  const double sign = spec.softmax_scale < 0 ? -1 : (spec.softmax_scale > 0 ? 1 : 0);
  const double magnitude = sign == 0 ? 1 : std::max<double>(std::abs(spec.softmax_scale), 0x1p-149);
  at::Tensor output = at::empty({s.query.size(0), spec.heads, spec.value_dim}, s.query.options());
  for (int64_t b = s.first; b < s.first + s.count; ++b) {
    const int64_t queries = s.cu_seqlens_q[b + 1] - s.cu_seqlens_q[b];
    const int64_t keys = s.cu_seqlens_k[b + 1] - s.cu_seqlens_k[b];
    const at::Tensor query = s.query.narrow(0, s.cu_seqlens_q[b] - query_base, queries);
    const at::Tensor key = s.key.narrow(0, s.cu_seqlens_k[b] - key_base, keys);
    const at::Tensor value = s.value.narrow(0, s.cu_seqlens_k[b] - key_base, keys);
    const at::Tensor rows = output.narrow(0, s.cu_seqlens_q[b] - query_base, queries);

    // Heads in groups that a batched product's grid can hold.
    for (int64_t h = 0; h < spec.heads; h += kMaxGridHeads) {
      const int64_t heads = std::min(kMaxGridHeads, spec.heads - h);
      const at::Tensor keys_t =  // [heads, head_dim, keys]
          key.narrow(1, h, heads).to(at::kFloat).permute({1, 2, 0});
      const at::Tensor values =  // [heads, keys, value_dim]
          value.narrow(1, h, heads).to(at::kFloat).transpose(0, 1);
      const int64_t step = MathBlockRows(heads, keys);
      for (int64_t first = 0; first < queries; first += step) {
        const int64_t count = std::min(step, queries - first);
        at::Tensor scores =  // [heads, count, keys]
            at::matmul(query.narrow(0, first, count)
                           .narrow(1, h, heads)
                           .to(at::kFloat)
                           .transpose(0, 1)
                           .mul(sign),
                       keys_t);
        if (IsCausal(spec)) {
          const at::TensorOptions index = s.query.options().dtype(at::kLong);
          const at::Tensor row = at::arange(first, first + count, index).unsqueeze(1);
          const at::Tensor column = at::arange(keys, index);
          scores.masked_fill_(column > row + (keys - queries),
                              -std::numeric_limits<float>::infinity());
        }
        // The maximum is subtracted before scaling, so that no scale makes scores infinite.
        scores.sub_(scores.amax(-1, /*keepdim=*/true)).mul_(magnitude);
        const at::Tensor block = at::matmul(at::softmax(scores, -1), values);
        rows.narrow(0, first, count).narrow(1, h, heads).copy_(block.transpose(0, 1));
      }
    }
  }
  return output;
}

}  // namespace castor::attention::cuda
