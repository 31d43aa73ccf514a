// One attention request for the benchmarks of approximate kernels: 8 heads of 64 dimensions in
// float32, with as many keys as queries.
#pragma once

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "engine/attention/problem.h"
#include "tests/bench/attention/batch.h"

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

inline Shape ShapeOf(const at::Tensor& queries) {
  const auto tokens = static_cast<int32_t>(queries.size(0));
  return {kHeads, kHeads, kDim, {tokens}, {tokens}};
}

// The request and its tensors. Keys and values are Gaussian.
struct OneRequest : Batch {
  explicit OneRequest(const at::Tensor& queries)
      : Batch(DType::kFloat32, ShapeOf(queries)),
        surrogates(GaussianRows(surrogate_count())),
        gate(at::randn({query_offsets[1]}, at::kFloat)) {
    query.copy_(queries);
    problem.cast.surrogates = static_cast<const std::byte*>(surrogates.const_data_ptr());
    problem.cast.gate = gate.const_data_ptr<float>();
  }

  int64_t surrogate_count() const {
    return (query_offsets[1] + kCastClusterSize - 1) / kCastClusterSize;
  }

  attention::Spec MakeSpec(Kernel kernel) const {
    attention::Spec spec = this->spec;
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

  at::Tensor surrogates;
  at::Tensor gate;
};

// The kernels that approximate, with the parameters that the benchmarks measure.
inline std::vector<Kernel> ApproximateKernels() {
  Cast cast;
  cast.cluster_size = kCastClusterSize;
  return {Clustered{}, ImprovedClustered{}, cast};
}

}  // namespace castor::bench
