// One attention request for the benchmarks of approximate kernels: 8 heads of 64 dimensions in
// float32, with as many keys as queries.
#pragma once

#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "engine/attention/problem.h"

namespace castor::bench {

constexpr int64_t kHeads = 8;
constexpr int64_t kDim = 64;
constexpr int32_t kCastClusterSize = 256;

// Independent normal values, [tokens, heads, dim]: the worst case for clustering.
inline at::Tensor GaussianRows(int64_t tokens) {
  return at::randn({tokens, kHeads, kDim}, at::kFloat);
}

// Rows in groups, as the queries of trained models are: each is one of `centres` of the standard
// deviation `size`, plus noise of the standard deviation `noise`.
inline at::Tensor GroupedRows(int64_t tokens, int64_t centres, double size, double noise) {
  const at::Tensor chosen =
      GaussianRows(centres).mul_(size).index_select(0, at::randint(centres, {tokens}, at::kLong));
  return GaussianRows(tokens).mul_(noise).add_(chosen);
}

// The request and its tensors. Keys and values are Gaussian.
struct OneRequest {
  explicit OneRequest(at::Tensor queries)
      : offsets{0, static_cast<int32_t>(queries.size(0))},
        query(std::move(queries)),
        key(GaussianRows(offsets[1])),
        value(GaussianRows(offsets[1])),
        output(at::empty_like(query)),
        surrogates(GaussianRows(surrogate_count())),
        gate(at::randn({offsets[1]}, at::kFloat)) {
    const auto bytes = [](const at::Tensor& tensor) {
      return static_cast<std::byte*>(tensor.data_ptr());
    };
    problem.query = bytes(query);
    problem.key = bytes(key);
    problem.value = bytes(value);
    problem.output = bytes(output);
    problem.query_stride = problem.key_stride = kHeads * kDim;
    problem.value_stride = problem.output_stride = kHeads * kDim;
    problem.value_head_stride = kDim;
    problem.cu_seqlens_q = problem.cu_seqlens_k = offsets;
    problem.cast.surrogates = bytes(surrogates);
    problem.cast.gate = gate.const_data_ptr<float>();
  }

  int64_t surrogate_count() const { return (offsets[1] + kCastClusterSize - 1) / kCastClusterSize; }

  attention::Spec MakeSpec(Kernel kernel) const {
    attention::Spec spec;
    spec.heads = spec.kv_heads = kHeads;
    spec.head_dim = spec.value_dim = kDim;
    spec.softmax_scale = 1 / std::sqrt(static_cast<double>(kDim));
    spec.surrogates = std::holds_alternative<Cast>(kernel) ? surrogate_count() : 0;
    spec.kernel = std::move(kernel);
    return spec;
  }

  // Computes `output` as a user of LibTorch would.
  void RunSdpa() const {
    const auto heads_first = [](const at::Tensor& packed) {
      return packed.transpose(0, 1).unsqueeze(0);
    };
    const at::Tensor out =
        at::scaled_dot_product_attention(heads_first(query), heads_first(key), heads_first(value));
    heads_first(output).copy_(out);
  }

  std::vector<int32_t> offsets;
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor output;
  at::Tensor surrogates;
  at::Tensor gate;
  attention::Problem problem;
};

// The kernels that approximate, with the parameters that the benchmarks measure.
inline std::vector<Kernel> ApproximateKernels() {
  Cast cast;
  cast.cluster_size = kCastClusterSize;
  return {Clustered{}, ImprovedClustered{}, cast};
}

}  // namespace castor::bench
