// Translates a Spec and a Problem for CAST's kernels. No tensor library here, so that tests without
// one can use it.
#pragma once

#include <variant>

#include "engine/attention/element.h"
#include "engine/attention/problem.h"
#include "engine/kernels/cuda/cast/cast.h"

namespace castor::attention::cuda {

// Requires that spec.kernel holds Cast, and CastFits.
inline kernels::cuda::CastShape CastShapeOf(const Spec& spec) {
  const Cast& cast = std::get<Cast>(spec.kernel);
  kernels::cuda::CastShape shape;
  shape.element = ElementOf(spec.dtype);
  shape.heads = static_cast<int>(spec.heads);
  shape.head_dim = static_cast<int>(spec.head_dim);
  shape.value_dim = static_cast<int>(spec.value_dim);
  shape.clusters = static_cast<int>(spec.surrogates);
  shape.cluster_size = cast.cluster_size;
  shape.scale = static_cast<float>(spec.softmax_scale);
  shape.group = static_cast<int>(spec.group());
  shape.laplace = cast.attention_function == Cast::AttentionFunction::kLaplace;
  shape.gated = cast.gate_temperature == Cast::GateTemperature::kSoftplus1;
  shape.per_head = cast.head_clustering == Cast::HeadClustering::kPerHead;
  shape.single_assignment = cast.clustering == Cast::Clustering::kSingleAssignmentTopK;
  return shape;
}

// The tensors of a problem, without copies. The caller adds the tables and the workspace.
inline kernels::cuda::CastBatch CastBatchOf(const Problem& problem) {
  kernels::cuda::CastBatch batch;
  batch.query = problem.query;
  batch.key = problem.key;
  batch.value = problem.value;
  batch.output = problem.output;
  batch.surrogates = problem.cast.surrogates;
  batch.gate = problem.cast.gate;
  batch.query_stride = problem.query_stride;
  batch.key_stride = problem.key_stride;
  batch.value_stride = problem.value_stride;
  batch.output_stride = problem.output_stride;
  batch.value_head_stride = problem.value_head_stride;
  batch.cu_seqlens = problem.cu_seqlens_q;
  return batch;
}

}  // namespace castor::attention::cuda
