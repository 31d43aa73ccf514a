#include "engine/encoder/layers/self_attention.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <variant>

namespace castor::encoder {
namespace {

// The number of heads processed at once for a batch of `tokens`.
int64_t HeadsAtOnce(const Qkv& qkv, const HeadBytes& bytes, int64_t tokens) {
  if (bytes.Of(tokens).value() >= (bytes.all * tokens).value()) return qkv.heads;
  const int64_t grain = qkv.head_grain();
  const int64_t most = std::max<int64_t>(1, bytes.most / (bytes.grain * tokens).value()) * grain;
  // Ranges of nearly equal sizes.
  const int64_t ranges = (qkv.heads + most - 1) / most;
  const int64_t even = (qkv.heads + ranges - 1) / ranges;
  return (even + grain - 1) / grain * grain;
}

attention::Spec OfHeads(attention::Spec spec, HeadRange range, const BodyInputs& in) {
  spec.key_bias_heads = in.key_bias.defined() ? 1 : 0;
  spec.kv_heads = range.count / spec.group();
  spec.heads = range.count;
  attention::PositionBias& bias = spec.bias;
  if (bias.table != nullptr) bias.table += range.first * (2 * bias.reach + 1);
  if (bias.slopes != nullptr) bias.slopes += range.first;
  return spec;
}

// A row of `qkv` holds queries, keys and values. `output`: [tokens, as wide as queries], columns of
// a wider tensor.
absl::Status Attend(const at::Tensor& qkv, const attention::Spec& spec, const BodyInputs& in,
                    const attention::CastInputs& cast, const at::Tensor& output) {
  const int64_t stride = qkv.size(1);
  const auto* base = static_cast<const std::byte*>(qkv.const_data_ptr());
  const auto bytes = [&](int64_t heads) {
    return heads * spec.head_dim * static_cast<int64_t>(qkv.element_size());
  };
  attention::Problem problem;
  problem.query = base;
  problem.key = base + bytes(spec.heads);
  problem.value = base + bytes(spec.heads + spec.kv_heads);
  problem.output = static_cast<std::byte*>(output.mutable_data_ptr());
  problem.query_stride = problem.key_stride = problem.value_stride = stride;
  problem.output_stride = output.stride(0);
  problem.value_head_stride = spec.head_dim;
  problem.cu_seqlens_q = problem.cu_seqlens_k = in.packing.cu_seqlens;
  problem.cast = cast;
  if (in.key_bias.defined()) problem.key_bias = in.key_bias.const_data_ptr<float>();
  return in.attention(spec, problem, in.control);
}

}  // namespace

absl::StatusOr<at::Tensor> SelfAttention(const Projection& projection, const at::Tensor& x,
                                         const attention::Spec& spec, const BodyInputs& in,
                                         const attention::CastInputs& cast) {
  const Qkv& qkv = projection.qkv;
  const bool is_cast = std::holds_alternative<Cast>(spec.kernel);
  const int64_t at_once =
      HeadsAtOnce(qkv, QkvBytes(qkv, x, is_cast, projection.most_bytes), x.size(0));
  at::Tensor output;
  for (int64_t first = 0; first < qkv.heads; first += at_once) {
    const HeadRange range = {.first = first, .count = std::min(at_once, qkv.heads - first)};
    const absl::StatusOr<at::Tensor> rows =
        qkv(x, projection.before, projection.rotation, range, {in.packing.tasks}, in.control);
    if (!rows.ok()) return rows;
    if (!output.defined()) output = at::empty({x.size(0), qkv.heads * qkv.head_dim()}, x.options());
    const at::Tensor columns =
        output.narrow(1, range.first * qkv.head_dim(), range.count * qkv.head_dim());
    absl::Status status = Attend(*rows, OfHeads(spec, range, in), in, cast, columns);
    if (!status.ok()) return status;
  }
  return output;
}

HeadBytes QkvBytes(const Qkv& qkv, const at::Tensor& like, bool together, int64_t most_bytes) {
  using kernels::Count;
  const auto of = [&](int64_t heads) {
    const int64_t rows = heads + 2 * (heads * qkv.kv_heads / qkv.heads);
    return Count(rows) * qkv.head_dim() * static_cast<int64_t>(like.element_size());
  };
  together = together || !like.device().is_cpu();
  return {.all = of(qkv.heads),
          .grain = of(together ? qkv.heads : qkv.head_grain()),
          .most = most_bytes};
}

}  // namespace castor::encoder
