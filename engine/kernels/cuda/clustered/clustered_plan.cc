// The host's part of clustered attention on the GPU: pure functions of the lengths.

#include <algorithm>
#include <limits>

#include "engine/kernels/area.h"
#include "engine/kernels/count.h"
#include "engine/kernels/cuda/clustered/clustered.h"
#include "engine/kernels/cuda/clustered/clustered_split.h"

namespace castor::kernels::cuda {
namespace {

Count LayOut(const ClusteredShape& shape, const ClusteredPlan& plan, void* base,
             ClusteredWorkspace* w) {
  const Count heads = shape.heads;
  const Count tokens = heads * plan.total(ClusteredPlan::kQueries);
  const Count centroids = heads * plan.total(ClusteredPlan::kCentroids);
  const Count partials = heads * plan.total(ClusteredPlan::kPartials);
  Area area(base, /*alignment=*/256);
  area.Allocate(w->codes, tokens);
  area.Allocate(w->labels, tokens);
  area.Allocate(w->order, tokens);
  area.Allocate(w->starts, centroids + heads * plan.sequences);
  area.Allocate(w->centroids, centroids * shape.head_dim);
  area.Allocate(w->partial_rows, partials * shape.value_dim);
  area.Allocate(w->partial_stats, partials * 2);
  area.Allocate(w->cluster_rows, centroids * shape.value_dim);
  if (shape.topk > 0) {
    area.Allocate(w->thresholds, centroids);
    area.Allocate(w->candidates, partials * CandidateCapacity(shape.topk));
    area.Allocate(w->candidate_counts, partials);
    area.Allocate(w->masses, centroids);
    area.Allocate(w->top_keys, centroids * shape.topk);
    area.Allocate(w->top_counts, centroids);
  }
  if (shape.log_sum_exp) area.Allocate(w->log_sums, centroids);
  area.Allocate(w->centroid_codes, centroids);
  area.Allocate(w->bit_counts, centroids * 64);
  area.Allocate(w->member_counts, centroids);
  area.Allocate(w->changes, heads * plan.sequences * 2);
  return area.bytes();
}

}  // namespace

ClusteredPlan PlanClustered(const ClusteredShape& shape, std::span<const int32_t> cu_seqlens_q,
                            std::span<const int32_t> cu_seqlens_k) {
  const auto sequences = static_cast<int64_t>(cu_seqlens_q.size()) - 1;
  ClusteredPlan plan;
  plan.sequences = sequences;
  plan.offsets.resize(ClusteredPlan::kArrays * (sequences + 1));
  int64_t totals[ClusteredPlan::kArrays] = {};
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t queries = cu_seqlens_q[s + 1] - cu_seqlens_q[s];
    const int64_t keys = cu_seqlens_k[s + 1] - cu_seqlens_k[s];
    const int64_t centroids = std::min<int64_t>(shape.clusters, queries);
    const KeySplit split = SplitKeys(keys, centroids, shape.topk);
    plan.most_centroids = std::max(plan.most_centroids, centroids);
    totals[ClusteredPlan::kQueries] += queries;
    totals[ClusteredPlan::kKeys] += keys;
    totals[ClusteredPlan::kCentroids] += centroids;
    totals[ClusteredPlan::kQueryTiles] += (queries + kTokenTile - 1) / kTokenTile;
    totals[ClusteredPlan::kAttendTiles] += RowTiles(centroids) * split.count;
    totals[ClusteredPlan::kPartials] += centroids * split.count;
    for (int a = 0; a < ClusteredPlan::kArrays; ++a) {
      if (totals[a] > std::numeric_limits<int32_t>::max()) return {};
      plan.offsets[a * (sequences + 1) + s + 1] = static_cast<int32_t>(totals[a]);
    }
  }
  ClusteredWorkspace nothing;
  plan.workspace_bytes = LayOut(shape, plan, nullptr, &nothing).value();
  return plan;
}

ClusteredWorkspace LayOut(const ClusteredShape& shape, const ClusteredPlan& plan, void* workspace) {
  ClusteredWorkspace laid_out;
  LayOut(shape, plan, workspace, &laid_out);
  return laid_out;
}

}  // namespace castor::kernels::cuda
