// Stage 2 of clustered attention: each sequence's queries in the order of their clusters, and the
// clusters' mean queries.
//
// The order is a counting sort, stable, so a cluster's members are always summed in the order of
// their positions. Floors at d = 64 and 64K queries of 8 heads: labels read twice, order written,
// 12 B a query, 1.5 us; queries gathered, 132 B each, 16 us.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;

// ---- sorting ------------------------------------------------------------------------------------

constexpr int kSortThreads = 1024;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kSortClusters = 512;  // sorted at a time; more clusters are more rounds

constexpr int kSortAhead = 8;  // loads of labels under way at a time

// A lane's next labels, counted from `first`; -1 beyond the end.
struct Labels {
  int32_t of[kSortAhead];

  __device__ Labels(const int32_t* labels, int32_t query, int32_t end, int32_t first) {
#pragma unroll
    for (int i = 0; i < kSortAhead; ++i) {
      of[i] = query + 32 * i < end ? labels[query + 32 * i] - first : -1;
    }
  }
};

// Sum over the lanes before this one.
__device__ int32_t ExclusiveSum(int32_t value, int lane) {
  int32_t sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const int32_t before = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += before;
  }
  return sum - value;
}

// grid (sequences, heads). Every warp has a range of the queries. It counts its members of each
// cluster, finds their places from the counts of all warps, and puts them there.
__global__ void __launch_bounds__(kSortThreads) SortKernel(const ClusteredArgs args) {
  __shared__ int32_t totals[kSortWarps];
  const SequenceOf sequence(args, static_cast<int32_t>(blockIdx.x));
  const int head = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int32_t round = min(sequence.centroids, kSortClusters);
  int32_t* const counts = DynamicShared<int32_t>();  // [warps, round]
  const int64_t base = head * args.query_tokens + sequence.query_begin;
  const int32_t* const labels = args.workspace.labels + base;
  int32_t* const order = args.workspace.order + base;
  int32_t* const starts = args.workspace.starts + head * (args.centroids + args.sequences) +
                          sequence.centroid_begin + sequence.index;
  const int32_t each = (sequence.queries + kSortThreads - 1) / kSortThreads * 32;
  const int32_t begin = min(warp * each, sequence.queries);
  const int32_t end = min(begin + each, sequence.queries);

  int32_t placed = 0;  // queries of clusters that earlier rounds sorted
  for (int32_t first = 0; first < sequence.centroids; first += kSortClusters) {
    const int32_t clusters = min(sequence.centroids - first, kSortClusters);
    for (int i = threadIdx.x; i < kSortWarps * round; i += kSortThreads) counts[i] = 0;
    __syncthreads();
    int32_t* const mine = counts + warp * round;
    for (int32_t group = begin; group < end; group += 32 * kSortAhead) {
      const Labels ahead(labels, group + lane, end, first);
#pragma unroll
      for (int i = 0; i < kSortAhead; ++i) {
        const int32_t c = ahead.of[i];
        if (c >= 0 && c < clusters) atomicAdd(&mine[c], 1);
      }
    }
    __syncthreads();

    // Thread c turns cluster c's counts into offsets within it; then clusters into offsets within
    // the sequence.
    const auto c = static_cast<int32_t>(threadIdx.x);
    int32_t members = 0;
    if (c < clusters) {
      for (int w = 0; w < kSortWarps; ++w) {
        const int32_t count = counts[w * round + c];
        counts[w * round + c] = members;
        members += count;
      }
    }
    const int32_t before = ExclusiveSum(members, lane);
    if (lane == 31) totals[warp] = before + members;
    __syncthreads();
    if (warp == 0) totals[lane] = ExclusiveSum(totals[lane], lane);
    __syncthreads();
    const int32_t start = placed + totals[warp] + before;
    if (c < clusters) {
      starts[first + c] = start;
      for (int w = 0; w < kSortWarps; ++w) counts[w * round + c] += start;
    }
    __syncthreads();  // the offsets are there
    for (int32_t group = begin; group < end; group += 32 * kSortAhead) {
      const Labels ahead(labels, group + lane, end, first);
#pragma unroll
      for (int i = 0; i < kSortAhead; ++i) {
        const int32_t label = ahead.of[i];
        const bool here = label >= 0 && label < clusters;
        const unsigned same = __match_any_sync(kAll, here ? label : -1);
        const int rank = __popc(same & ((1u << lane) - 1));
        if (here) order[mine[label] + rank] = group + 32 * i + lane;
        __syncwarp();
        if (here && rank == 0) mine[label] += __popc(same);
        __syncwarp();
      }
    }
    __syncthreads();
    // The last warp's offset of the last cluster is now the end of what this round placed.
    placed = counts[(kSortWarps - 1) * round + clusters - 1];
    __syncthreads();
  }
  if (threadIdx.x == 0) starts[sequence.centroids] = sequence.queries;
}

// ---- means --------------------------------------------------------------------------------------

constexpr int kMeanThreads = 256;
constexpr int kMeanWarps = kMeanThreads / 32;
constexpr int kMeanColumns = 64;  // that a block sums at a time: two a lane

// grid (centroids, heads). Warp w sums members w, w + 8, ...; then the warps' sums are added in
// order.
template <typename T>
__global__ void __launch_bounds__(kMeanThreads) MeanKernel(const ClusteredArgs args) {
  __shared__ float sums[kMeanWarps][kMeanColumns];
  const auto row = static_cast<int32_t>(blockIdx.x);
  const int head = blockIdx.y;
  const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kCentroids, row));
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const auto dim = static_cast<int>(args.shape.head_dim);
  const int32_t* const starts =
      args.workspace.starts + head * (args.centroids + args.sequences) + row + sequence.index;
  const int32_t begin = starts[0];
  const int32_t members = starts[1] - begin;
  const int32_t* const order =
      args.workspace.order + head * args.query_tokens + sequence.query_begin + begin;
  float* const mean = args.workspace.centroids + (head * args.centroids + row) * dim;

  for (int e0 = 0; e0 < dim; e0 += kMeanColumns) {
    const int e = e0 + 2 * lane;
    float low = 0;
    float high = 0;
#pragma unroll 8
    for (int32_t i = warp; i < members; i += kMeanWarps) {
      const T* const query = RowOf<T>(args.problem.query, sequence.query_begin + order[i],
                                      args.problem.query_stride, head, dim);
      if (e < dim) low += ToFloat(query[e]);
      if (e + 1 < dim) high += ToFloat(query[e + 1]);
    }
    sums[warp][2 * lane] = low;
    sums[warp][2 * lane + 1] = high;
    __syncthreads();
    const int column = threadIdx.x;
    if (column < kMeanColumns && e0 + column < dim) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kMeanWarps; ++w) sum += sums[w][column];
      // An empty cluster's row is not read, but must be finite.
      mean[e0 + column] = members == 0 ? 0 : sum / static_cast<float>(members);
    }
    __syncthreads();
  }
}

}  // namespace

cudaError_t AverageMembers(const ClusteredArgs& args, const ClusteredPlan& plan,
                           cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(args.shape.heads);
  const int64_t round = plan.most_centroids < kSortClusters ? plan.most_centroids : kSortClusters;
  LaunchShape sort;
  sort.grid = dim3(static_cast<unsigned>(args.sequences), heads);
  sort.block = kSortThreads;
  sort.shared_bytes = sizeof(int32_t) * kSortWarps * round;
  const cudaError_t error = Launch(SortKernel, sort, stream, args);
  if (error != cudaSuccess) return error;
  return ForElement(args.shape.element, [&]<typename T>() {
    const dim3 grid(static_cast<unsigned>(args.centroids), heads);
    return Launch(MeanKernel<T>, {grid, kMeanThreads}, stream, args);
  });
}

}  // namespace castor::kernels::cuda
