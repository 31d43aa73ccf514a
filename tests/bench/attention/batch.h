// A request of several sequences for the benchmarks of attention.
#pragma once

#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/attention/problem.h"

namespace castor::bench {

inline std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets = {0};
  for (int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

struct Shape {
  int64_t heads = 8;
  int64_t kv_heads = 8;
  int64_t dim = 64;
  std::vector<int32_t> queries = {};  // of each sequence
  std::vector<int32_t> keys = {};
};

// One request of several sequences and its tensors, [tokens, heads, dim].
struct Batch {
  Batch(DType dtype, const Shape& shape)
      : shape(shape), query_offsets(OffsetsOf(shape.queries)), key_offsets(OffsetsOf(shape.keys)) {
    const auto& [heads, kv_heads, dim, queries, keys] = shape;
    const at::ScalarType type = dtype == DType::kFloat32   ? at::kFloat
                                : dtype == DType::kFloat16 ? at::kHalf
                                                           : at::kBFloat16;
    query = at::randn({query_offsets.back(), heads, dim}, at::kFloat).to(type);
    key = at::randn({key_offsets.back(), kv_heads, dim}, at::kFloat).to(type);
    value = at::randn({key_offsets.back(), kv_heads, dim}, at::kFloat).to(type);
    output = at::empty_like(query);

    spec.dtype = dtype;
    spec.heads = heads;
    spec.kv_heads = kv_heads;
    spec.head_dim = spec.value_dim = dim;
    spec.softmax_scale = 1 / std::sqrt(static_cast<double>(dim));
    const auto bytes = [](const at::Tensor& tensor) {
      return static_cast<std::byte*>(tensor.data_ptr());
    };
    problem.query = bytes(query);
    problem.key = bytes(key);
    problem.value = bytes(value);
    problem.output = bytes(output);
    problem.query_stride = problem.output_stride = heads * dim;
    problem.key_stride = problem.value_stride = kv_heads * dim;
    problem.value_head_stride = dim;
    problem.cu_seqlens_q = query_offsets;
    problem.cu_seqlens_k = key_offsets;
    log_sum_exp.resize(query_offsets.back() * heads);
  }

  double flops() const {
    double total = 0;
    for (size_t s = 0; s < shape.queries.size(); ++s) {
      total += 4.0 * shape.queries[s] * shape.keys[s] * spec.heads * spec.head_dim;
    }
    return total;
  }

  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  Shape shape;
  std::vector<int32_t> query_offsets;
  std::vector<int32_t> key_offsets;
  at::Tensor mask;  // [queries, keys] of scores to add; LibTorch's alone
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor output;
  std::vector<float> log_sum_exp;
  attention::Spec spec;
  attention::Problem problem;
};

}  // namespace castor::bench
