// Stage 3 of clustered attention in fp32, for every type and dimension: centroids attend to the
// keys of their sequence, a part of the keys per block, and list candidates for their top keys.
// clustered_attend_mma.cu is the same on tensor cores. No score ever reaches device memory.
//
// Per centroid and key 2 * (d + d_v) fp32 operations; at 64K keys, 8 heads, C = 100, d = 64 17
// Tflop, some 0.5 ms of FMA.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/clustered/clustered_scores.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/load.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/scale.cuh"
#include "engine/kernels/cuda/top_keys.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;
constexpr int kThreads = 256;
constexpr int kRows = kGenericRows;
constexpr int kDepth = 32;      // dimensions of queries and keys in shared memory at a time
constexpr int kColumns = 128;   // of the values, per block
constexpr int kValueKeys = 16;  // keys whose values are in shared memory at a time
constexpr int kRowThreads = kThreads / kRows;  // that share a row's softmax

struct Tiles {
  float queries[kRows][kDepth + 4];
  float keys[kKeyTile][kDepth + 4];
  float weights[kRows][kKeyTile + 4];  // scores, then weights
  float values[kValueKeys][kColumns];
  float rescale[kRows];
  int counts[kRows];  // of candidates
};

// Scores of the block's rows and `count` keys from `first` on, into tiles.weights. Each is one
// chain of FMA from dimension 0 up, as in ThresholdKernel.
template <typename T>
__device__ void Score(const ClusteredArgs& args, const KeyRange& range, int head, int32_t first,
                      int count, Tiles& tiles) {
  const auto dim = static_cast<int>(args.shape.head_dim);
  const int thread = threadIdx.x;
  const int row0 = thread / 16 * 2;
  const int key0 = thread % 16;
  float products[2][4] = {};
  for (int e0 = 0; e0 < dim; e0 += kDepth) {
    __syncthreads();
    for (int i = thread; i < kRows * kDepth; i += kThreads) {
      const int row = i / kDepth;
      const int e = e0 + i % kDepth;
      tiles.queries[row][i % kDepth] =
          row < range.rows && e < dim ? range.centroids[int64_t{row} * dim + e] : 0;
    }
    for (int i = thread; i < kKeyTile * kDepth; i += kThreads) {
      const int key = i / kDepth;
      const int e = e0 + i % kDepth;
      tiles.keys[key][i % kDepth] =
          key < count && e < dim ? ToFloat(KeyRow<T>(args, range.key_begin + first + key, head)[e])
                                 : 0;
    }
    __syncthreads();
    for (int e = 0; e < kDepth; e += 4) {
      float4 q[2];
      for (int i = 0; i < 2; ++i) {
        q[i] = *reinterpret_cast<const float4*>(&tiles.queries[row0 + i][e]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 k = *reinterpret_cast<const float4*>(&tiles.keys[key0 + 16 * j][e]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& product = products[i][j];
          product = fmaf(q[i].x, k.x, product);
          product = fmaf(q[i].y, k.y, product);
          product = fmaf(q[i].z, k.z, product);
          product = fmaf(q[i].w, k.w, product);
        }
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) tiles.weights[row0 + i][key0 + 16 * j] = products[i][j];
  }
  __syncthreads();
}

// grid (attend tiles, heads, stripes of columns)
template <typename T>
__global__ void __launch_bounds__(kThreads) AttendKernel(const ClusteredArgs args) {
  WaitForEarlierKernels();
  __shared__ Tiles tiles;
  const int head = blockIdx.y;
  const KeyRange range(args, static_cast<int32_t>(blockIdx.x), head, kRows);
  const auto value_dim = static_cast<int>(args.shape.value_dim);
  const int column0 = static_cast<int>(blockIdx.z) * kColumns;
  const int thread = threadIdx.x;
  const int lane = thread % 32;
  const int warp = thread / 32;
  const SoftmaxScale scale = SoftmaxScaleOf(args.shape.softmax_scale);

  // Of the row that this thread shares with kRowThreads - 1 others.
  const int row = thread / kRowThreads;
  const int share = thread % kRowThreads;
  RowCandidates candidates;
  if (args.shape.topk > 0 && blockIdx.z == 0 && row < range.rows) {
    candidates = RowCandidates(args, range, head, row, &tiles.counts[row]);
  }
  if (share == 0) tiles.counts[row] = 0;
  float greatest = -INFINITY;
  float sum = 0;
  float output[4][4] = {};  // rows 4 * warp + i, columns 4 * lane + j

  for (int32_t first = range.first; first < range.end; first += kKeyTile) {
    const int count = min(range.end - first, kKeyTile);
    Score<T>(args, range, head, first, count, tiles);

    float tile_greatest = -INFINITY;
    for (int key = share; key < count; key += kRowThreads) {
      const float score = tiles.weights[row][key];
      tile_greatest = fmaxf(tile_greatest, score * scale.sign);
      candidates.Offer(score, first + key);
    }
    for (int step = 1; step < kRowThreads; step *= 2) {
      tile_greatest = fmaxf(tile_greatest, __shfl_xor_sync(kAll, tile_greatest, step));
    }
    const float now = fmaxf(greatest, tile_greatest);
    const float base = now == -INFINITY ? 0 : now;
    const float rescale = Exp2((greatest - base) * scale.magnitude);
    greatest = now;
    sum *= rescale;
    for (int key = share; key < kKeyTile; key += kRowThreads) {
      const float below = fmaf(tiles.weights[row][key], scale.sign, -base);
      const float weight = key < count ? Exp2(below * scale.magnitude) : 0;
      tiles.weights[row][key] = weight;
      sum += weight;
    }
    if (share == 0) tiles.rescale[row] = rescale;
    candidates.Trim<kRowThreads>();
    __syncwarp();  // the warp's four rows of weights and factors are there
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float factor = tiles.rescale[4 * warp + i];
#pragma unroll
      for (int j = 0; j < 4; ++j) output[i][j] *= factor;
    }

    for (int key0 = 0; key0 < count; key0 += kValueKeys) {
      __syncthreads();
      for (int i = thread; i < kValueKeys * kColumns; i += kThreads) {
        const int key = key0 + i / kColumns;
        const int column = column0 + i % kColumns;
        tiles.values[i / kColumns][i % kColumns] =
            key < count && column < value_dim
                ? ToFloat(ValueRow<T>(args, range.key_begin + first + key, head)[column])
                : 0;
      }
      __syncthreads();
      for (int key = 0; key < kValueKeys; ++key) {
        const float4 v = *reinterpret_cast<const float4*>(&tiles.values[key][4 * lane]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float weight = tiles.weights[4 * warp + i][key0 + key];
          output[i][0] = fmaf(weight, v.x, output[i][0]);
          output[i][1] = fmaf(weight, v.y, output[i][1]);
          output[i][2] = fmaf(weight, v.z, output[i][2]);
          output[i][3] = fmaf(weight, v.w, output[i][3]);
        }
      }
    }
  }

  for (int step = 1; step < kRowThreads; step *= 2) sum += __shfl_xor_sync(kAll, sum, step);
  const int64_t partial = head * args.partials + range.partial;
  if (blockIdx.z == 0 && share == 0 && row < range.rows) {
    args.workspace.partial_stats[(partial + row) * 2] = greatest;
    args.workspace.partial_stats[(partial + row) * 2 + 1] = sum;
    candidates.Finish();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = 4 * warp + i;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = column0 + 4 * lane + j;
      if (r < range.rows && column < value_dim) {
        args.workspace.partial_rows[(partial + r) * value_dim + column] = output[i][j];
      }
    }
  }
}

// ---- a bound for the top keys
// --------------------------------------------------------------------

constexpr int kThresholdRows = 8;

// grid (centroids / 8 rounded up, heads) over all sequences' centroids: a thread keeps the greatest
// score of its sampled keys, for up to 8 centroids of one sequence. The k-th greatest of 256
// threads' is no more than the k-th greatest of all keys.
template <typename T>
__global__ void __launch_bounds__(kSampleGroups) ThresholdKernel(const ClusteredArgs args) {
  WaitForEarlierKernels();
  __shared__ float greatest[kThresholdRows][kSampleGroups];
  const int head = blockIdx.y;
  const auto dim = static_cast<int>(args.shape.head_dim);
  const int thread = threadIdx.x;
  const int warp = thread / 32;
  const auto total = static_cast<int32_t>(args.centroids);
  int32_t row = static_cast<int32_t>(blockIdx.x) * kThresholdRows;
  const int32_t rows_end = min(row + kThresholdRows, total);
  while (row < rows_end) {
    const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kCentroids, row));
    const int32_t end = min(rows_end, sequence.centroid_begin + sequence.centroids);
    const int rows = end - row;
    float* const thresholds = args.workspace.thresholds + head * args.centroids + row;
    const int32_t sample = SampleSize(sequence.keys, args.shape.topk);
    if (sample == 0) {
      if (thread < rows) thresholds[thread] = NAN;
      row = end;
      continue;
    }
    const float* const centroids = args.workspace.centroids + (head * args.centroids + row) * dim;
    float best[kThresholdRows];
    for (int r = 0; r < kThresholdRows; ++r) best[r] = -INFINITY;
    for (int32_t i = thread; i < sample; i += kSampleGroups) {
      const auto key = static_cast<int32_t>(int64_t{i} * sequence.keys / sample);
      const T* const k = KeyRow<T>(args, sequence.key_begin + key, head);
      float products[kThresholdRows] = {};
      for (int e = 0; e < dim; ++e) {
        const float element = ToFloat(k[e]);
#pragma unroll
        for (int r = 0; r < kThresholdRows; ++r) {
          // Missing rows repeat the first one, whose memory is valid.
          products[r] = fmaf(centroids[int64_t{r < rows ? r : 0} * dim + e], element, products[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < kThresholdRows; ++r) best[r] = fmaxf(best[r], products[r]);
    }
#pragma unroll
    for (int r = 0; r < kThresholdRows; ++r) greatest[r][thread] = best[r];
    __syncthreads();
    if (warp < rows) {
      const float bound = BoundOf(greatest[warp], args.shape.topk);
      if (thread % 32 == 0) thresholds[warp] = bound;
    }
    __syncthreads();
    row = end;
  }
}

}  // namespace

cudaError_t AttendGeneric(const ClusteredArgs& args, const ClusteredPlan& plan,
                          cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(args.shape.heads);
  return ForElement(args.shape.element, [&]<typename T>() {
    if (args.shape.topk > 0) {
      const dim3 grid(static_cast<unsigned>((args.centroids + kThresholdRows - 1) / kThresholdRows),
                      heads);
      const cudaError_t error =
          LaunchStage(ThresholdKernel<T>, {grid, kSampleGroups}, stream, args);
      if (error != cudaSuccess) return error;
    }
    const dim3 grid(static_cast<unsigned>(plan.total(ClusteredPlan::kAttendTiles)), heads,
                    static_cast<unsigned>((args.shape.value_dim + kColumns - 1) / kColumns));
    return LaunchStage(AttendKernel<T>, {grid, kThreads}, stream, args);
  });
}

}  // namespace castor::kernels::cuda
