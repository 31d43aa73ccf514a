// Stage 3 of clustered attention, in fp32: centroids attend to the keys of their sequence, a part
// of the keys per block, and list candidates for their top keys. No score ever reaches device
// memory.
//
// Per centroid and key 2 * (d + d_v) fp32 operations; at 64K keys, 8 heads, C = 100, d = 64 13
// Gflop, some 0.3 ms of FMA.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/scale.cuh"
#include "engine/kernels/cuda/top_keys.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;
constexpr int kThreads = 256;
constexpr int kDepth = 32;      // dimensions of queries and keys in shared memory at a time
constexpr int kColumns = 128;   // of the values, per block
constexpr int kValueKeys = 16;  // keys whose values are in shared memory at a time
constexpr int kRowThreads = kThreads / kRowTile;  // that share a row's softmax

struct Tiles {
  float queries[kRowTile][kDepth + 4];
  float keys[kKeyTile][kDepth + 4];
  float weights[kRowTile][kKeyTile + 4];  // scores, then weights
  float values[kValueKeys][kColumns];
  float rescale[kRowTile];
  int counts[kRowTile];  // of candidates
};

// The centroids and keys of a block of the attend stage. Row tiles are consecutive within a split,
// and splits within a sequence.
struct KeyRange {
  int32_t key_begin;       // of the sequence, among all keys
  int32_t first, end;      // keys of the sequence
  int32_t centroid_begin;  // of the block's rows, among all centroids
  int rows;
  int64_t partial;         // of the first row, among a head's
  const float* centroids;  // [rows, head_dim]

  __device__ KeyRange(const ClusteredArgs& args, int32_t tile, int head) {
    const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kAttendTiles, tile));
    const KeySplit split = SplitKeys(sequence.keys, sequence.centroids, args.shape.topk);
    const int32_t within = tile - args.Offsets(ClusteredPlan::kAttendTiles)[sequence.index];
    const auto row_tiles = static_cast<int32_t>(RowTiles(sequence.centroids));
    const int32_t part = within / row_tiles;
    const int32_t row = within % row_tiles * kRowTile;
    key_begin = sequence.key_begin;
    first = static_cast<int32_t>(part * split.keys);
    end = min(first + static_cast<int32_t>(split.keys), sequence.keys);
    centroid_begin = sequence.centroid_begin + row;
    rows = min(kRowTile, sequence.centroids - row);
    partial = args.Offsets(ClusteredPlan::kPartials)[sequence.index] +
              int64_t{part} * sequence.centroids + row;
    centroids =
        args.workspace.centroids + (head * args.centroids + centroid_begin) * args.shape.head_dim;
  }
};

// ---- lists of candidates ------------------------------------------------------------------------

// One centroid's list in one split, in device memory, as seen by the threads that share its row.
// They belong to one warp, and the list's length is in shared memory. Without a list, nothing is
// added. Threads add in any order: only the set matters.
class RowCandidates {
 public:
  RowCandidates() = default;
  __device__ RowCandidates(const ClusteredArgs& args, const KeyRange& range, int head, int row,
                           int* shared_count)
      : count_(shared_count), topk_(args.shape.topk) {
    const int64_t at = head * args.partials + range.partial + row;
    list_ = args.workspace.candidates + at * CandidateCapacity(topk_);
    final_count_ = args.workspace.candidate_counts + at;
    threshold_ = args.workspace.thresholds[head * args.centroids + range.centroid_begin + row];
  }

  __device__ void Offer(float score, int32_t key) {
    if (list_ == nullptr || !Passes(score, threshold_)) return;
    list_[atomicAdd(count_, 1)] = MakeCandidate(score, key);
  }

  // After a tile: makes room for another. kRowThreads neighbouring lanes share a row; all lanes of
  // the warp call it.
  __device__ void Trim() {
    __syncwarp();
    const int count = list_ == nullptr ? 0 : *count_;
    const bool full = count + kKeyTile > CandidateCapacity(topk_) && list_ != nullptr;
    for (unsigned left = __ballot_sync(0xffffffff, full); left != 0;) {
      const int from = __ffs(left) - 1;
      auto* const list = reinterpret_cast<uint64_t*>(__shfl_sync(
          0xffffffff, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(list_)), from));
      const int k = __shfl_sync(0xffffffff, topk_, from);
      const float least = KeepGreatest(list, __shfl_sync(0xffffffff, count, from), k);
      const int row = static_cast<int>(threadIdx.x) % 32 / kRowThreads;
      if (row == from / kRowThreads) {
        threshold_ = least;
        if (static_cast<int>(threadIdx.x) % 32 == from) *count_ = k;
      }
      left &= ~(((1u << kRowThreads) - 1) << (from / kRowThreads * kRowThreads));
    }
    __syncwarp();
  }

  // After the last tile, by one of the row's threads.
  __device__ void Finish() {
    if (list_ != nullptr) *final_count_ = *count_;
  }

 private:
  uint64_t* list_ = nullptr;
  int* count_ = nullptr;
  int32_t* final_count_ = nullptr;
  int topk_ = 0;
  float threshold_ = 0;
};

// ---- the attention ------------------------------------------------------------------------------

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
    for (int i = thread; i < kRowTile * kDepth; i += kThreads) {
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
  __shared__ Tiles tiles;
  const int head = blockIdx.y;
  const KeyRange range(args, static_cast<int32_t>(blockIdx.x), head);
  const auto value_dim = static_cast<int>(args.shape.value_dim);
  const int column0 = static_cast<int>(blockIdx.z) * kColumns;
  const int thread = threadIdx.x;
  const int lane = thread % 32;
  const int warp = thread / 32;
  const SoftmaxScale scale = SoftmaxScaleOf(args.shape.softmax_scale);

  // kRowThreads threads share a row.
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
    candidates.Trim();
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

// ---- a bound for the top keys -------------------------------------------------------------------

constexpr int kThresholdRows = 8;

// Disjoint groups of sampled keys; as many as the threads of ThresholdKernel.
constexpr int kSampleGroups = 256;

// The number of a sequence's keys that are sampled for a bound, a multiple of kSampleGroups. 0 for
// few keys or a large k, where the lists alone suffice.
__device__ __forceinline__ int32_t SampleSize(int32_t keys, int topk) {
  if (keys < 4 * kSampleGroups || topk > kSampleGroups / 4) return 0;
  const int32_t sample = keys / 16 / kSampleGroups * kSampleGroups;
  return min(max(sample, 2 * kSampleGroups), 8 * kSampleGroups);
}

// A number below the k-th greatest score of all keys, from the greatest score of each group; or
// NaN, which every score passes. Called by a whole warp.
__device__ __forceinline__ float BoundOf(const float* greatest, int topk) {
  const uint64_t bound = KthGreatest<32>([&](int i) { return MakeCandidate(greatest[i], 0) >> 32; },
                                         kSampleGroups, topk);
  // The next lower number, so that the key itself passes too.
  return ScoreOf((bound - 1) << 32);
}

// grid (centroids / 8 rounded up, heads) over all sequences' centroids: a thread keeps the greatest
// score of its sampled keys, for up to 8 centroids of one sequence. The k-th greatest of 256
// threads' is no more than the k-th greatest of all keys.
template <typename T>
__global__ void __launch_bounds__(kSampleGroups) ThresholdKernel(const ClusteredArgs args) {
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

cudaError_t Attend(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(args.shape.heads);
  return ForElement(args.shape.element, [&]<typename T>() {
    if (args.shape.topk > 0) {
      const dim3 grid(static_cast<unsigned>((args.centroids + kThresholdRows - 1) / kThresholdRows),
                      heads);
      const cudaError_t error = Launch(ThresholdKernel<T>, {grid, kSampleGroups}, stream, args);
      if (error != cudaSuccess) return error;
    }
    const dim3 grid(static_cast<unsigned>(plan.total(ClusteredPlan::kAttendTiles)), heads,
                    static_cast<unsigned>((args.shape.value_dim + kColumns - 1) / kColumns));
    return Launch(AttendKernel<T>, {grid, kThreads}, stream, args);
  });
}

}  // namespace castor::kernels::cuda
