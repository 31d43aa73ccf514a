// The order of clustered attention's stages. Each is a file: hash, Lloyd's algorithm, sort and
// means, the centroids' attention, the merging of its splits, and the rows.

#include "engine/kernels/cuda/clustered/clustered.h"
#include "engine/kernels/cuda/clustered/clustered_args.cuh"

namespace castor::kernels::cuda {

cudaError_t Run(const ClusteredShape& shape, const ClusteredPlan& plan,
                const ClusteredProblem& problem, cudaStream_t stream) {
  if (plan.sequences == 0 || plan.total(ClusteredPlan::kQueries) == 0) return cudaSuccess;
  ClusteredArgs args;
  args.shape = shape;
  args.problem = problem;
  args.workspace = LayOut(shape, plan, problem.workspace);
  args.sequences = static_cast<int32_t>(plan.sequences);
  args.query_tokens = plan.total(ClusteredPlan::kQueries);
  args.centroids = plan.total(ClusteredPlan::kCentroids);
  args.partials = plan.total(ClusteredPlan::kPartials);

  using Stage = cudaError_t (*)(const ClusteredArgs&, const ClusteredPlan&, cudaStream_t);
  const Stage stages[] = {HashQueries, ClusterCodes, AverageMembers,
                          Attend,      MergeSplits,  shape.topk == 0 ? WriteRows : RefineRows};
  for (const Stage stage : stages) {
    const cudaError_t error = stage(args, plan, stream);
    if (error != cudaSuccess) return error;
  }
  return shape.log_sum_exp ? ShareLogSums(args, plan, stream) : cudaSuccess;
}

}  // namespace castor::kernels::cuda
