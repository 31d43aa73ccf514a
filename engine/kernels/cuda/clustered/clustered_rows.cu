// Last stage of clustered attention: each query's row. Plain: its cluster's. Improved: on the
// cluster's top keys, the query's own weights, which distribute the centroid's total weight of
// these keys; elsewhere the centroid's weights.
//
// Floors at d_v = 64, 64K queries of 8 heads, half types: plain 132 B a query, 16 us; improved 260
// B, 32 us.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/scale.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <typename T>
__device__ __forceinline__ T* OutputRow(const ClusteredArgs& args, int64_t token, int head) {
  return static_cast<T*>(args.problem.output) + token * args.problem.output_stride +
         head * args.shape.value_dim;
}

// grid (query tiles, heads)
template <typename T>
__global__ void __launch_bounds__(kThreads) WriteKernel(const ClusteredArgs args) {
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int head = blockIdx.y;
  const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kQueryTiles, tile));
  const int32_t first =
      (tile - args.Offsets(ClusteredPlan::kQueryTiles)[sequence.index]) * kTokenTile;
  const int count = min(sequence.queries - first, kTokenTile);
  const int64_t token = sequence.query_begin + first;
  const int32_t* const labels = args.workspace.labels + head * args.query_tokens + token;
  const auto value_dim = static_cast<int>(args.shape.value_dim);
  const float* const rows =
      args.workspace.cluster_rows + (head * args.centroids + sequence.centroid_begin) * value_dim;
  for (int i = threadIdx.x; i < count * value_dim; i += kThreads) {
    const int query = i / value_dim;
    const int e = i % value_dim;
    OutputRow<T>(args, token + query, head)[e] =
        FromFloat<T>(rows[int64_t{labels[query]} * value_dim + e]);
  }
}

// grid (query tiles, heads): a warp per query, in the order of clusters, whose keys are then near.
template <typename T>
__global__ void __launch_bounds__(kThreads) RefineKernel(const ClusteredArgs args) {
  float* const weights = DynamicShared<float>() +  // [warps, topk]
                         static_cast<int>(threadIdx.x) / 32 * args.shape.topk;
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int head = blockIdx.y;
  const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kQueryTiles, tile));
  const int32_t first =
      (tile - args.Offsets(ClusteredPlan::kQueryTiles)[sequence.index]) * kTokenTile;
  const int32_t end = min(first + kTokenTile, sequence.queries);
  const int lane = threadIdx.x % 32;
  const auto dim = static_cast<int>(args.shape.head_dim);
  const auto value_dim = static_cast<int>(args.shape.value_dim);
  const int64_t base = head * args.query_tokens + sequence.query_begin;
  const SoftmaxScale scale = SoftmaxScaleOf(args.shape.softmax_scale);

  for (int32_t i = first + static_cast<int32_t>(threadIdx.x) / 32; i < end; i += kWarps) {
    const int32_t query = args.workspace.order[base + i];
    const int64_t row =
        head * args.centroids + sequence.centroid_begin + args.workspace.labels[base + query];
    const int32_t* const keys = args.workspace.top_keys + row * args.shape.topk;
    const int count = args.workspace.top_counts[row];
    const T* const q = RowOf<T>(args.problem.query, sequence.query_begin + query,
                                args.problem.query_stride, head, dim);
    float greatest = -INFINITY;
    for (int j = lane; j < count; j += 32) {
      const T* const k = KeyRow<T>(args, sequence.key_begin + keys[j], head);
      float product = 0;
      for (int e = 0; e < dim; ++e) product = fmaf(ToFloat(q[e]), ToFloat(k[e]), product);
      weights[j] = product * scale.sign;
      greatest = fmaxf(greatest, weights[j]);
    }
    for (int step = 1; step < 32; step *= 2) {
      greatest = fmaxf(greatest, __shfl_xor_sync(kAll, greatest, step));
    }
    if (greatest == -INFINITY) greatest = 0;
    float sum = 0;
    for (int j = lane; j < count; j += 32) {
      weights[j] = Exp2((weights[j] - greatest) * scale.magnitude);
      sum += weights[j];
    }
    for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(kAll, sum, step);
    const float factor = args.workspace.masses[row] / sum;
    __syncwarp();
    T* const to = OutputRow<T>(args, sequence.query_begin + query, head);
    for (int e = lane; e < value_dim; e += 32) {
      float own = 0;
      for (int j = 0; j < count; ++j) {
        const T* const v = ValueRow<T>(args, sequence.key_begin + keys[j], head);
        own = fmaf(weights[j], ToFloat(v[e]), own);
      }
      to[e] = FromFloat<T>(fmaf(factor, own, args.workspace.cluster_rows[row * value_dim + e]));
    }
    __syncwarp();
  }
}

// grid (query tiles, heads): each query's log-sum-exp is its cluster's.
__global__ void __launch_bounds__(kThreads) ShareKernel(const ClusteredArgs args) {
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int head = blockIdx.y;
  const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kQueryTiles, tile));
  const int32_t first =
      (tile - args.Offsets(ClusteredPlan::kQueryTiles)[sequence.index]) * kTokenTile;
  const int32_t end = min(first + kTokenTile, sequence.queries);
  const float* const log_sums =
      args.workspace.log_sums + head * args.centroids + sequence.centroid_begin;
  for (int32_t i = first + static_cast<int32_t>(threadIdx.x); i < end; i += kThreads) {
    const int64_t token = int64_t{sequence.query_begin} + i;
    const int32_t label = args.workspace.labels[head * args.query_tokens + token];
    args.problem.log_sum_exp[token * args.shape.heads + head] = log_sums[label];
  }
}

}  // namespace

cudaError_t ShareLogSums(const ClusteredArgs& args, const ClusteredPlan& plan,
                         cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(plan.total(ClusteredPlan::kQueryTiles)),
                  static_cast<unsigned>(args.shape.heads));
  return Launch(ShareKernel, {grid, kThreads}, stream, args);
}

cudaError_t WriteRows(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(plan.total(ClusteredPlan::kQueryTiles)),
                  static_cast<unsigned>(args.shape.heads));
  return ForElement(args.shape.element, [&]<typename T>() {
    return Launch(WriteKernel<T>, {grid, kThreads}, stream, args);
  });
}

cudaError_t RefineRows(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(plan.total(ClusteredPlan::kQueryTiles)),
                    static_cast<unsigned>(args.shape.heads));
  shape.block = kThreads;
  shape.shared_bytes = sizeof(float) * kWarps * args.shape.topk;
  return ForElement(args.shape.element,
                    [&]<typename T>() { return Launch(RefineKernel<T>, shape, stream, args); });
}

}  // namespace castor::kernels::cuda
