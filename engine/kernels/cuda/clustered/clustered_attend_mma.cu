// Stage 3 of clustered attention on tensor cores: clustered_attend.cu, which describes the stage,
// for half types and the usual dimensions.
//
// A block has up to 128 centroids, 16 a warp, as the query rows of a flash kernel, and a part of
// the keys. Centroids are fp32. They enter as two terms of the keys' type, so scores are exact to
// fp32 and top keys are the definition's, for 50% more work on the tensor cores. Per tile of 64
// keys and warp at d = 64: 96 products, 1024 exponentials, 16 KB read from shared memory. At 64K
// keys of 8 heads and C = 100 (7 warps work): 134 MB of keys and values, 31 us; 22 Tflop, 35 us of
// mma.sync; 0.5 G exponentials, 14 us. Splits write 4 (d_v + 2) B a centroid, 17 MB at 64 splits.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/clustered/clustered_flash.cuh"
#include "engine/kernels/cuda/clustered/clustered_scores.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/load.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/scale.cuh"
#include "engine/kernels/cuda/top_keys.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpRows = 16;
constexpr int kKeyGroups = kKeyTile / 8;  // of 8 keys, a product's width

template <typename T, int dim>
constexpr size_t kTileElements = size_t{kKeyTile} * kTileStride<dim>;

// Two tiles of keys, two of values, and the lengths of the lists of candidates.
template <typename T, int dim>
constexpr size_t kShared = 4 * kTileElements<T, dim> * sizeof(T) + kMmaRows * sizeof(int);

// 16 centroids as operands: row g in registers 0 and 2, row g + 8 in 1 and 3.
template <int dim>
struct Centroids {
  uint32_t high[dim / 16][4];
  uint32_t low[dim / 16][4];  // the rest after rounding to `high`
};

template <typename T, int dim>
__device__ void LoadCentroids(const float* rows, int count, Centroids<dim>& c) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < dim / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i % 2 * 8;
      const int e = k * 16 + lane % 4 * 2 + i / 2 * 8;
      const float2 x =
          row < count ? *reinterpret_cast<const float2*>(rows + row * dim + e) : make_float2(0, 0);
      c.high[k][i] = RoundPair<T>(x.x, x.y);
      const T first = FromFloat<T>(x.x);
      const T second = FromFloat<T>(x.y);
      c.low[k][i] = RoundPair<T>(x.x - ToFloat(first), x.y - ToFloat(second));
    }
  }
}

// Adds 16 dimensions' products. Every score is summed in this order, whichever kernel computes it.
template <typename T, int dim>
__device__ __forceinline__ void Score(const Centroids<dim>& c, int k, const uint32_t (&keys)[2],
                                      float (&scores)[4]) {
  MmaM16N8K16<T>(scores, c.low[k], keys);
  MmaM16N8K16<T>(scores, c.high[k], keys);
}

// grid (attend tiles, heads). Without top keys two blocks fit a multiprocessor.
template <typename T, int dim, bool improved>
__global__ void __launch_bounds__(kThreads, improved || dim > 64 ? 1 : 2)
    AttendMmaKernel(const ClusteredArgs args) {
  WaitForEarlierKernels();
  T* const keys = DynamicShared<T>();  // [2, kKeyTile, kTileStride]
  T* const values = keys + 2 * kTileElements<T, dim>;
  int* const counts = reinterpret_cast<int*>(values + 2 * kTileElements<T, dim>);
  const int head = blockIdx.y;
  const KeyRange range(args, static_cast<int32_t>(blockIdx.x), head, kMmaRows);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const SoftmaxScale scale = SoftmaxScaleOf(args.shape.softmax_scale);
  const int warp_row = warp * kWarpRows;
  const bool works = warp_row < range.rows;

  Centroids<dim> centroids;
  LoadCentroids<T, dim>(range.centroids + warp_row * dim, range.rows - warp_row, centroids);
  RowCandidates candidates[2];  // of rows g and g + 8
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + g + 8 * half;
    if (t == 0) counts[row] = 0;
    if (improved && row < range.rows) {
      candidates[half] = RowCandidates(args, range, head, row, &counts[row]);
    }
  }
  __syncwarp();
  float greatest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};
  float output[dim / 8][4] = {};

  const auto load = [&](int32_t first, int buffer) {
    const int count = min(range.end - first, kKeyTile);
    // Values have as many elements as keys.
    const auto copy = [&](const void* tensor, int64_t stride, T* tile) {
      const T* const rows =
          RowOf<T>(tensor, range.key_begin + first, stride, head / args.shape.group, dim);
      CopyRows<T, dim, kKeyTile, kThreads>(static_cast<int>(threadIdx.x), count,
                                           tile + buffer * kTileElements<T, dim>,
                                           [&](int row) { return rows + row * stride; });
    };
    copy(args.problem.key, args.problem.key_stride, keys);
    copy(args.problem.value, args.problem.value_stride, values);
    CommitCopies();
  };
  load(range.first, 0);
  int buffer = 0;
  for (int32_t first = range.first; first < range.end; first += kKeyTile, buffer ^= 1) {
    if (first + kKeyTile < range.end) {
      load(first + kKeyTile, buffer ^ 1);
      WaitCopies<1>();
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    if (works) {
      const int count = min(range.end - first, kKeyTile);
      float scores[kKeyGroups][4] = {};
      ScoreTile<T, dim>(keys + buffer * kTileElements<T, dim>, scores,
                        [&](int k, const uint32_t(&pair)[2], float(&sums)[4]) {
                          Score<T, dim>(centroids, k, pair, sums);
                        });
#pragma unroll
      for (int n = 0; n < kKeyGroups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = n * 8 + 2 * t + i % 2;
          if (key < count) {
            if constexpr (improved) candidates[i / 2].Offer(scores[n][i], first + key);
            scores[n][i] *= scale.sign;
          } else {
            scores[n][i] = -INFINITY;
          }
        }
      }
      WeightTile<dim>(scores, scale.magnitude, greatest, sum, output);
      AddValues<T, dim>(scores, values + buffer * kTileElements<T, dim>, output);
      if constexpr (improved) {
        candidates[0].Trim<4>();
        candidates[1].Trim<4>();
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = QuadSum(sum[half]);
    const int row = warp_row + g + 8 * half;
    if (row >= range.rows) continue;
    const int64_t partial = head * args.partials + range.partial + row;
    float* const to = args.workspace.partial_rows + partial * dim + 2 * t;
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
      *reinterpret_cast<float2*>(to + n * 8) =
          make_float2(output[n][2 * half], output[n][2 * half + 1]);
    }
    if (t == 0) {
      *reinterpret_cast<float2*>(args.workspace.partial_stats + partial * 2) =
          make_float2(greatest[half], total);
      if constexpr (improved) candidates[half].Finish();
    }
  }
}

// ---- a bound for the top keys
// --------------------------------------------------------------------

// grid (centroids / 16 rounded up, heads) over all sequences' centroids: 8 warps score the same 16
// centroids of one sequence against tiles of keys from all over it.
template <typename T, int dim>
__global__ void __launch_bounds__(kThreads) ThresholdMmaKernel(const ClusteredArgs args) {
  WaitForEarlierKernels();
  static_assert(kSampleGroups == kThreads / 32 * 4 * kKeyGroups);
  __shared__ float greatest[kWarpRows][kSampleGroups];
  const int head = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const auto total = static_cast<int32_t>(args.centroids);
  int32_t row = static_cast<int32_t>(blockIdx.x) * kWarpRows;
  const int32_t rows_end = min(row + kWarpRows, total);
  while (row < rows_end) {
    const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kCentroids, row));
    const int32_t end = min(rows_end, sequence.centroid_begin + sequence.centroids);
    const int rows = end - row;
    float* const thresholds = args.workspace.thresholds + head * args.centroids + row;
    const int32_t tiles = SampleSize(sequence.keys, args.shape.topk) / kKeyTile;
    if (tiles == 0) {
      if (static_cast<int>(threadIdx.x) < rows) thresholds[threadIdx.x] = NAN;
      row = end;
      continue;
    }
    Centroids<dim> centroids;
    LoadCentroids<T, dim>(args.workspace.centroids + (head * args.centroids + row) * dim, rows,
                          centroids);
    float best[kKeyGroups][2];
    for (int n = 0; n < kKeyGroups; ++n) best[n][0] = best[n][1] = -INFINITY;
    for (int tile = warp; tile < tiles; tile += kThreads / 32) {
      const auto first = static_cast<int32_t>(int64_t{tile} * sequence.keys / tiles);
      const T* const keys = KeyRow<T>(args, sequence.key_begin + first + g, head) + 2 * t;
#pragma unroll
      for (int n = 0; n < kKeyGroups; ++n) {
        const T* const key = keys + n * 8 * args.problem.key_stride;
        float scores[4] = {};
#pragma unroll
        for (int k = 0; k < dim / 16; ++k) {
          const uint32_t pair[2] = {LoadPair(key + k * 16), LoadPair(key + k * 16 + 8)};
          Score<T, dim>(centroids, k, pair, scores);
        }
        best[n][0] = fmaxf(best[n][0], fmaxf(scores[0], scores[1]));
        best[n][1] = fmaxf(best[n][1], fmaxf(scores[2], scores[3]));
      }
    }
#pragma unroll
    for (int n = 0; n < kKeyGroups; ++n) {
      const int group = (warp * 4 + t) * kKeyGroups + n;
      greatest[g][group] = best[n][0];
      greatest[g + 8][group] = best[n][1];
    }
    __syncthreads();
    for (int r = warp; r < rows; r += kThreads / 32) {
      const float bound = BoundOf(greatest[r], args.shape.topk);
      if (lane == 0) thresholds[r] = bound;
    }
    __syncthreads();
    row = end;
  }
}

}  // namespace

cudaError_t AttendMma(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(args.shape.heads);
  return ForHalfAndDim(args.shape.element, args.shape.head_dim, [&]<typename T, int dim>() {
    if (args.shape.topk > 0) {
      const dim3 grid(static_cast<unsigned>((args.centroids + kWarpRows - 1) / kWarpRows), heads);
      const cudaError_t error =
          LaunchStage(ThresholdMmaKernel<T, dim>, {grid, kThreads}, stream, args);
      if (error != cudaSuccess) return error;
    }
    const dim3 grid(static_cast<unsigned>(plan.total(ClusteredPlan::kAttendTiles)), heads);
    const LaunchShape shape{grid, kThreads, kShared<T, dim>};
    return args.shape.topk > 0 ? LaunchStage(AttendMmaKernel<T, dim, true>, shape, stream, args)
                               : LaunchStage(AttendMmaKernel<T, dim, false>, shape, stream, args);
  });
}

}  // namespace castor::kernels::cuda
