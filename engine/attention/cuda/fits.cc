#include "engine/attention/cuda/fits.h"

#include <limits>
#include <variant>

#include "engine/attention/cuda/cast_shape.h"
#include "engine/attention/cuda/choice.h"
#include "engine/attention/cuda/clustered_shape.h"
#include "engine/kernels/count.h"
#include "engine/kernels/cuda/cast/cast.h"
#include "engine/kernels/cuda/clustered/clustered.h"

namespace castor::attention::cuda {
namespace {

constexpr int64_t kMostDims = 1 << 20;

// Bounds that grids can hold, in pieces of some columns, and that blocks can index in int32.
// Positions are refused, since queries of a cluster share their scores, and so are softcaps and
// biases.
bool ShapeFits(const Spec& spec) {
  return IsFloating(spec.dtype) && !spec.positional() && spec.softcap == 0 &&
         spec.key_bias_heads == 0 && spec.heads <= kMaxGridHeads && spec.head_dim <= kMostDims &&
         spec.value_dim <= kMostDims;
}

}  // namespace

bool ClusteredFits(const Spec& spec) {
  return ClusteringOf(spec.kernel) != nullptr && ShapeFits(spec) &&
         OptionBeyondThePaper(spec.kernel).empty();
}

bool CastFits(const Spec& spec) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
  // N_c comes from a layer's file or a request. It is 0 if asked only whether CAST is served.
  return std::holds_alternative<Cast>(spec.kernel) && ShapeFits(spec) && !spec.log_sum_exp &&
         spec.surrogates <= kMaxInt / (spec.heads > 0 ? spec.heads : 1);
}

int64_t ClusteredWorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k) {
  const kernels::cuda::ClusteredPlan plan =
      PlanClustered(ClusteredShapeOf(spec), cu_seqlens_q, cu_seqlens_k);
  return plan.sequences == 0 ? Count::kMost : plan.workspace_bytes;
}

int64_t CastWorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                           std::span<const int32_t>) {
  if (spec.surrogates <= 0) return 0;  // not yet known
  return kernels::cuda::CastWorkspaceBytes(CastShapeOf(spec), cu_seqlens_q);
}

}  // namespace castor::attention::cuda
