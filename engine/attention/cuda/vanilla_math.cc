// The math path of vanilla_cuda.h. It uses no CUDA and computes where its tensors are, so tests run
// it on the host.

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/attention/cuda/choice.h"
#include "engine/attention/cuda/vanilla_cuda.h"

namespace castor::attention::cuda {
namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

// Scores that the math path computes at a time.
struct Block {
  int64_t first_row;  // counted in the sequence
  int64_t rows;
  int64_t first_head;
  int64_t heads;
};

// The first key that a row of a block sees, and the one after the last. Without a window, all keys.
std::pair<int64_t, int64_t> KeysOf(const Spec& spec, const Block& block, const Place& place,
                                   int64_t keys) {
  const auto [left, right] = MathWindow(spec);
  const int64_t first = block.first_row + place.shift;
  int64_t begin = 0;
  int64_t end = keys;
  if (left >= 0 && place.visible == 0) begin = std::clamp<int64_t>(first - left, 0, keys);
  if (right >= 0) end = std::clamp<int64_t>(first + block.rows + right, begin, keys);
  return {begin, end};
}

// Adds biases to the scores [heads, rows, keys], which are yet to be multiplied by `magnitude`, and
// masks hidden keys. `first_key` is the place of the first key, `keys` their number in the
// sequence. Slopes times a row's distance to its nearest key are left out of the scores, because
// floats hold no large distance, and returned, [rows, heads]; undefined without slopes.
at::Tensor AddPlaces(const Spec& spec, const Block& block, const Place& at, int64_t first_key,
                     int64_t keys, double magnitude, at::Tensor& scores) {
  const at::Device device = scores.device();
  const at::TensorOptions index = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t first = block.first_row + at.shift;
  const at::Tensor row = at::arange(first, first + block.rows, index).unsqueeze(1);
  const at::Tensor key = at::arange(first_key, first_key + scores.size(2), index);
  const at::Tensor distance = at::sub(key, row);  // [rows, keys]
  const auto of_heads = [&](const float* data, int64_t each) {
    // Only read; from_blob takes no const pointer.
    return at::from_blob(const_cast<float*>(data) + block.first_head * each, {block.heads, each},
                         at::TensorOptions().dtype(at::kFloat).device(device));
  };
  const PositionBias& bias = spec.bias;
  if (bias.table != nullptr) {
    const at::Tensor place = at::clamp(distance, -bias.reach, bias.reach).add_(bias.reach);
    scores.add_(at::index_select(of_heads(bias.table, 2 * bias.reach + 1), 1, place.flatten())
                    .view_as(scores),
                1 / magnitude);
  }
  at::Tensor beyond;
  if (bias.slopes != nullptr) {
    const at::Tensor slopes = of_heads(bias.slopes, 1);
    const at::Tensor nearest = at::clamp(row, 0, keys - 1);
    scores.sub_(at::mul(slopes.unsqueeze(2), at::abs(at::sub(key, nearest))), 1 / magnitude);
    beyond = at::mul(slopes.t(), at::abs(at::sub(row, nearest)));
  }
  const auto hide = [&](const at::Tensor& hidden) {
    scores.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
  };
  if (IsCausal(spec)) hide(at::gt(distance, 0));
  if (spec.window.left >= 0) {
    const at::Tensor outside = distance.lt(-spec.window.left);
    hide(at.visible > 0 ? outside.logical_and(key.ge(at.visible)) : outside);
  }
  if (spec.window.right >= 0) hide(at::gt(distance, spec.window.right));
  return beyond;
}

// Keys or values [tokens, heads, dim] in float32 for the heads from `first` on.
at::Tensor RowsOfHeads(const Spec& spec, const at::Tensor& rows, int64_t first, int64_t heads) {
  if (spec.group() == 1) return rows.narrow(1, first, heads).to(at::kFloat);
  const at::TensorOptions index = at::TensorOptions().dtype(at::kLong).device(rows.device());
  const at::Tensor read = at::floor_divide(at::arange(first, first + heads, index), spec.group());
  return at::index_select(rows.to(at::kFloat), 1, read);
}

// The biases [heads, 1, keys] that keys from `token` on bring.
at::Tensor KeyBiases(const Spec& spec, const Problem& problem, const Block& block, int64_t token,
                     int64_t keys, at::Device device) {
  const float* const first = KeyBiasOf(spec, problem, token, 0);
  // Only read; from_blob takes no const pointer.
  at::Tensor biases = at::from_blob(const_cast<float*>(first), {keys, spec.key_bias_heads, 1},
                                    at::TensorOptions().dtype(at::kFloat).device(device));
  if (spec.key_bias_heads > 1) biases = RowsOfHeads(spec, biases, block.first_head, block.heads);
  return biases.permute({1, 2, 0});
}

}  // namespace

std::pair<at::Tensor, at::Tensor> MathAttention(const Spec& spec, const Sequences& s) {
  const int32_t query_base = s.cu_seqlens_q[s.first];
  const int32_t key_base = s.cu_seqlens_k[s.first];
  // Masked scores, which are -infinity, are multiplied too, so the magnitude must not be 0, not
  // even in float32.
  const double sign = spec.softmax_scale < 0 ? -1 : (spec.softmax_scale > 0 ? 1 : 0);
  double magnitude = sign == 0 ? 1 : std::max<double>(std::abs(spec.softmax_scale), 0x1p-149);
  double factor = sign;
  const bool biased = spec.bias.any() || spec.key_bias_heads > 0;
  if ((biased || spec.softcap > 0) && magnitude < 1) {
    // A bias is divided by what is left of the scale, and must not become infinite.
    factor = spec.softmax_scale;
    magnitude = 1;
  }
  const double capped = std::min<double>(magnitude / spec.softcap, kLargest);
  if (spec.softcap > 0) magnitude = 1;
  const bool hides = IsCausal(spec) || spec.positional() || spec.key_bias_heads > 0;
  at::Tensor output = at::empty({s.query.size(0), spec.heads, spec.value_dim}, s.query.options());
  at::Tensor log_sum_exp;
  if (spec.log_sum_exp) {
    log_sum_exp = at::empty({s.query.size(0), spec.heads}, s.query.options().dtype(at::kFloat));
  }
  for (int64_t b = s.first; b < s.first + s.count; ++b) {
    const int64_t queries = s.cu_seqlens_q[b + 1] - s.cu_seqlens_q[b];
    const int64_t keys = s.cu_seqlens_k[b + 1] - s.cu_seqlens_k[b];
    const at::Tensor query = s.query.narrow(0, s.cu_seqlens_q[b] - query_base, queries);
    const at::Tensor key = s.key.narrow(0, s.cu_seqlens_k[b] - key_base, keys);
    const at::Tensor value = s.value.narrow(0, s.cu_seqlens_k[b] - key_base, keys);
    const Place place = s.problem.PlaceOf(spec, b);
    const at::Tensor rows = output.narrow(0, s.cu_seqlens_q[b] - query_base, queries);

    // Heads in groups that a batched product's grid can hold.
    for (int64_t h = 0; h < spec.heads; h += kMaxGridHeads) {
      const int64_t heads = std::min(kMaxGridHeads, spec.heads - h);
      const at::Tensor keys_t = RowsOfHeads(spec, key, h, heads).permute({1, 2, 0});
      const at::Tensor values = RowsOfHeads(spec, value, h, heads).transpose(0, 1);
      const int64_t step = MathBlockRows(heads, MathBlockKeys(spec, keys));
      for (int64_t first = 0; first < queries; first += step) {
        const int64_t count = std::min(step, queries - first);
        const Block block{.first_row = first, .rows = count, .first_head = h, .heads = heads};
        const auto [first_key, end_key] = KeysOf(spec, block, place, keys);
        const int64_t seen = end_key - first_key;
        const auto block_of = [&](const at::Tensor& tensor) {
          return tensor.narrow(0, first, count).narrow(1, h, heads);
        };
        at::Tensor log_sums;
        if (spec.log_sum_exp) {
          log_sums = block_of(log_sum_exp.narrow(0, s.cu_seqlens_q[b] - query_base, queries));
        }
        if (seen == 0) {
          block_of(rows).zero_();
          if (spec.log_sum_exp) log_sums.fill_(-std::numeric_limits<float>::infinity());
          continue;
        }
        at::Tensor scores =  // [heads, count, seen]
            at::matmul(query.narrow(0, first, count)
                           .narrow(1, h, heads)
                           .to(at::kFloat)
                           .transpose(0, 1)
                           .mul(factor),
                       keys_t.narrow(2, first_key, seen));
        if (spec.softcap > 0) scores.mul_(capped).tanh_().mul_(spec.softcap);
        at::Tensor beyond;
        if (IsCausal(spec) || spec.positional()) {
          beyond = AddPlaces(spec, block, place, first_key, keys, magnitude, scores);
        }
        if (spec.key_bias_heads > 0) {
          const int64_t token = s.cu_seqlens_k[b] + first_key;
          scores.add_(KeyBiases(spec, s.problem, block, token, seen, scores.device()),
                      1 / magnitude);
        }
        // The maximum is subtracted before scaling, so that no scale makes scores infinite. Finite,
        // so that the rows that see no key keep scores of -infinity.
        at::Tensor greatest = scores.amax(-1, /*keepdim=*/true);
        const at::Tensor none = greatest.eq(-std::numeric_limits<float>::infinity());
        if (hides) greatest.clamp_min_(-kLargest);
        scores.sub_(greatest).mul_(magnitude);
        if (spec.log_sum_exp) {
          greatest.mul_(magnitude).clamp_(-kLargest, kLargest);
          log_sums.copy_(at::logsumexp(scores, -1).add_(greatest.squeeze(-1)).transpose(0, 1));
          if (beyond.defined()) log_sums.sub_(beyond);
        }
        at::Tensor weights = at::softmax(scores, -1);
        if (hides) weights.masked_fill_(none, 0);
        const at::Tensor sums = at::matmul(weights, values.narrow(1, first_key, seen));
        block_of(rows).copy_(sums.transpose(0, 1));
      }
    }
  }
  return {std::move(output), std::move(log_sum_exp)};
}

}  // namespace castor::attention::cuda
