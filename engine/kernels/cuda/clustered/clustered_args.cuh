// The arguments of every stage of clustered attention, passed by value, and how blocks find their
// work.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/cuda/clustered/clustered.h"
#include "engine/kernels/cuda/clustered/clustered_split.h"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {

struct ClusteredArgs {
  ClusteredShape shape;
  ClusteredProblem problem;
  ClusteredWorkspace workspace;
  int32_t sequences;
  int64_t query_tokens;
  int64_t centroids;
  int64_t partials;

  __device__ const int32_t* Offsets(ClusteredPlan::Array array) const {
    return problem.offsets + array * (sequences + 1);
  }
};

// One sequence, as a block sees it.
struct SequenceOf {
  int32_t index;
  int32_t query_begin, queries;
  int32_t key_begin, keys;
  int32_t centroid_begin, centroids;

  __device__ SequenceOf(const ClusteredArgs& args, int32_t sequence) : index(sequence) {
    const int32_t* const q = args.Offsets(ClusteredPlan::kQueries) + sequence;
    const int32_t* const k = args.Offsets(ClusteredPlan::kKeys) + sequence;
    const int32_t* const c = args.Offsets(ClusteredPlan::kCentroids) + sequence;
    query_begin = q[0];
    queries = q[1] - q[0];
    key_begin = k[0];
    keys = k[1] - k[0];
    centroid_begin = c[0];
    centroids = c[1] - c[0];
  }
};

// The sequence that piece `piece` of the array belongs to: the last non-empty one that begins at or
// before it.
__device__ inline int32_t FindSequence(const ClusteredArgs& args, ClusteredPlan::Array array,
                                       int32_t piece) {
  const int32_t* const begins = args.Offsets(array);
  int32_t low = 0;
  int32_t high = args.sequences;  // begins[low] <= piece < begins[high]
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (begins[middle] <= piece) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// One element of a packed tensor's row: token `token`, head `head`.
template <typename T>
__device__ __forceinline__ const T* RowOf(const void* tensor, int64_t token, int64_t stride,
                                          int head, int64_t dim) {
  return static_cast<const T*>(tensor) + token * stride + head * dim;
}

// The key and the value that query head `head` reads.
template <typename T>
__device__ __forceinline__ const T* KeyRow(const ClusteredArgs& args, int64_t token, int head) {
  return RowOf<T>(args.problem.key, token, args.problem.key_stride, head / args.shape.group,
                  args.shape.head_dim);
}
template <typename T>
__device__ __forceinline__ const T* ValueRow(const ClusteredArgs& args, int64_t token, int head) {
  return RowOf<T>(args.problem.value, token, args.problem.value_stride, head / args.shape.group,
                  args.problem.value_head_stride);
}

// ---- the stages, in order; each queues its launches ---------------------------------------------

cudaError_t HashQueries(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream);
cudaError_t ClusterCodes(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream);
cudaError_t AverageMembers(const ClusteredArgs& args, const ClusteredPlan& plan,
                           cudaStream_t stream);
cudaError_t Attend(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream);
cudaError_t MergeSplits(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream);
cudaError_t WriteRows(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream);
cudaError_t RefineRows(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream);
cudaError_t ShareLogSums(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream);

}  // namespace castor::kernels::cuda
