// Last stage of improved clustered attention on tensor cores: clustered_rows.cu's RefineKernel for
// half types and the usual dimensions.
//
// A warp has 16 consecutive queries in the order of clusters, mostly of one cluster, sometimes of
// two or more. For each of these clusters it gathers 32 top keys and their values into its shared
// memory, a line each, and runs a small flash kernel of 16 queries: 64 products at d = 64 and k =
// 32. Gathers come from the first-level cache where the block's warps share a cluster.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/clustered/clustered_flash.cuh"
#include "engine/kernels/cuda/clustered/clustered_scores.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/load.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/scale.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kWarpRows = 16;
static_assert(kWarps * kWarpRows == kTokenTile);
constexpr int kTopTile = 32;  // top keys at a time

// A tile of keys and one of values per warp.
template <typename T, int dim>
constexpr size_t kShared = size_t{kWarps} * 2 * kTopTile * kTileStride<dim> * sizeof(T);

// grid (query tiles, heads)
template <typename T, int dim>
__global__ void __launch_bounds__(kThreads) RefineMmaKernel(const ClusteredArgs args) {
  WaitForEarlierKernels();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  T* const key_tile = DynamicShared<T>() + warp * 2 * kTopTile * kTileStride<dim>;
  T* const value_tile = key_tile + kTopTile * kTileStride<dim>;
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int head = blockIdx.y;
  const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kQueryTiles, tile));
  const int32_t first =
      (tile - args.Offsets(ClusteredPlan::kQueryTiles)[sequence.index]) * kTokenTile +
      warp * kWarpRows;
  const int rows = min(sequence.queries - first, kWarpRows);
  if (rows <= 0) return;
  const int64_t base = head * args.query_tokens + sequence.query_begin;
  const SoftmaxScale scale = SoftmaxScaleOf(args.shape.softmax_scale);

  // Lane l holds the index of query l % 16 of the warp; rows beyond the last one repeat it.
  const int32_t my_query = args.workspace.order[base + first + min(lane % kWarpRows, rows - 1)];
  const int32_t my_label = args.workspace.labels[base + my_query];
  int32_t query[2];  // of rows g and g + 8
  int32_t label[2];
  uint32_t q[dim / 16][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    query[half] = __shfl_sync(kAll, my_query, g + 8 * half);
    label[half] = __shfl_sync(kAll, my_label, g + 8 * half);
    const T* const row = RowOf<T>(args.problem.query, sequence.query_begin + query[half],
                                  args.problem.query_stride, head, dim) +
                         2 * t;
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
      q[k][half] = LoadPair(row + k * 16);
      q[k][half + 2] = LoadPair(row + k * 16 + 8);
    }
  }

  for (unsigned left = (1u << rows) - 1; left != 0;) {
    const int32_t cluster = __shfl_sync(kAll, my_label, __ffs(left) - 1);
    left &= ~__ballot_sync(kAll, my_label == cluster);
    const int64_t row = head * args.centroids + sequence.centroid_begin + cluster;
    const int32_t* const keys = args.workspace.top_keys + row * args.shape.topk;
    const int count = args.workspace.top_counts[row];

    float greatest[2] = {-INFINITY, -INFINITY};
    float sum[2] = {};
    float output[dim / 8][4] = {};
    for (int key0 = 0; key0 < count; key0 += kTopTile) {
      const int tile_count = min(count - key0, kTopTile);
      __syncwarp();
      const auto gather = [&](const T* first, int64_t stride, T* to) {
        CopyRows<T, dim, kTopTile, 32>(
            lane, tile_count, to, [&](int i) { return first + int64_t{keys[key0 + i]} * stride; });
        CommitCopies();
      };
      gather(KeyRow<T>(args, sequence.key_begin, head), args.problem.key_stride, key_tile);
      gather(ValueRow<T>(args, sequence.key_begin, head), args.problem.value_stride, value_tile);
      WaitCopies<1>();
      __syncwarp();
      float scores[kTopTile / 8][4] = {};
      ScoreTile<T, dim>(key_tile, scores, [&](int k, const uint32_t(&pair)[2], float(&sums)[4]) {
        MmaM16N8K16<T>(sums, q[k], pair);
      });
#pragma unroll
      for (int n = 0; n < kTopTile / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool there = n * 8 + 2 * t + i % 2 < tile_count;
          scores[n][i] = there ? scores[n][i] * scale.sign : -INFINITY;
        }
      }
      WeightTile<dim>(scores, scale.magnitude, greatest, sum, output);
      WaitCopies<0>();
      __syncwarp();
      AddValues<T, dim>(scores, value_tile, output);
    }

    const float mass = args.workspace.masses[row];
    const float* const rest = args.workspace.cluster_rows + row * dim + 2 * t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = QuadSum(sum[half]);
      if (label[half] != cluster || g + 8 * half >= rows) continue;
      const float factor = mass / total;
      T* const to = static_cast<T*>(args.problem.output) +
                    (sequence.query_begin + int64_t{query[half]}) * args.problem.output_stride +
                    head * int64_t{dim} + 2 * t;
#pragma unroll
      for (int n = 0; n < dim / 8; ++n) {
        const float2 others = *reinterpret_cast<const float2*>(rest + n * 8);
        *reinterpret_cast<uint32_t*>(to + n * 8) =
            RoundPair<T>(fmaf(factor, output[n][2 * half], others.x),
                         fmaf(factor, output[n][2 * half + 1], others.y));
      }
    }
  }
}

}  // namespace

cudaError_t RefineRowsMma(const ClusteredArgs& args, const ClusteredPlan& plan,
                          cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(plan.total(ClusteredPlan::kQueryTiles)),
                  static_cast<unsigned>(args.shape.heads));
  return ForHalfAndDim(args.shape.element, args.shape.head_dim, [&]<typename T, int dim>() {
    return LaunchStage(RefineMmaKernel<T, dim>, {grid, kThreads, kShared<T, dim>}, stream, args);
  });
}

}  // namespace castor::kernels::cuda
