// Translates a Spec for clustered attention's kernels. No tensor library here, so that tests
// without one can use it.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "engine/attention/element.h"
#include "engine/attention/problem.h"
#include "engine/kernels/cuda/clustered/clustered.h"
#include "engine/kernels/philox.h"

namespace castor::attention::cuda {

// Requires that spec.kernel holds Clustered or ImprovedClustered.
inline kernels::cuda::ClusteredShape ClusteredShapeOf(const Spec& spec) {
  const auto* const improved = std::get_if<ImprovedClustered>(&spec.kernel);
  const Clustered& clustering = improved != nullptr ? *improved : std::get<Clustered>(spec.kernel);
  kernels::cuda::ClusteredShape shape;
  shape.element = ElementOf(spec.dtype);
  shape.heads = spec.heads;
  shape.head_dim = spec.head_dim;
  shape.value_dim = spec.value_dim;
  shape.softmax_scale = static_cast<float>(spec.softmax_scale);
  shape.clusters = clustering.clusters;
  shape.iterations = clustering.iterations;
  shape.bits = clustering.bits;
  shape.topk = improved == nullptr ? 0 : improved->topk;
  shape.log_sum_exp = spec.log_sum_exp;
  shape.group = static_cast<int32_t>(spec.group());
  return shape;
}

// The strata's random draws for the initial centroids, [clusters].
inline std::vector<uint32_t> CentroidDraws(const Clustered& clustering) {
  std::vector<uint32_t> draws;
  draws.reserve(clustering.clusters);
  for (int32_t s = 0; s < clustering.clusters; ++s) {
    draws.push_back(kernels::Philox(kernels::RandomStream::kCentroid, static_cast<uint32_t>(s), 0,
                                    clustering.seed)[0]);
  }
  return draws;
}

}  // namespace castor::attention::cuda
