// Stage 4 of clustered attention: a centroid's splits become its row of the output and, for
// improved clustered attention, its top keys, their share of the weights and the row without them.
//
// A block per centroid. It reads the splits' results: at 64 splits, d_v = 64 and C = 100 of 8 heads
// 13 MB, which fit the second-level cache, and some 20 candidates a split.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/scale.cuh"
#include "engine/kernels/cuda/top_keys.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMostTop = 1024;
constexpr int kGathered =
    2048;  // candidates that shared memory holds; more are read where they lie

struct Splits {
  float factors[kMostSplits];  // factor for a split's weights, by the greatest of all scores
  int32_t counts[kMostSplits];
  int gathered;
  uint64_t least;
};

// Further memory of improved clustered attention, in dynamic shared memory.
struct Top {
  uint64_t candidates[kGathered];
  uint64_t chosen[kMostTop];
  int32_t keys[kMostTop];
  float weights[kMostTop];
  int count;
};

// Sets top.chosen[0, top.count) to the `wanted` greatest candidates of all splits, in any order.
__device__ void ChooseTop(const ClusteredArgs& args, int64_t partial, int32_t centroids,
                          int splits_count, int wanted, Splits& splits, Top& top) {
  const int thread = threadIdx.x;
  const int capacity = CandidateCapacity(args.shape.topk);
  const auto list = [&](int s) {
    return args.workspace.candidates + (partial + int64_t{s} * centroids) * capacity;
  };
  if (thread < splits_count) {
    splits.counts[thread] = args.workspace.candidate_counts[partial + int64_t{thread} * centroids];
  }
  if (thread == 0) top.count = 0;
  __syncthreads();
  int all = 0;
  for (int s = 0; s < splits_count; ++s) all += splits.counts[s];
  const bool fits = all <= kGathered;
  if (fits) {
    int base = 0;
    for (int s = 0; s < splits_count; ++s) {
      for (int i = thread; i < splits.counts[s]; i += kThreads)
        top.candidates[base + i] = list(s)[i];
      base += splits.counts[s];
    }
    __syncthreads();
  }
  const int count = fits ? all : splits_count * capacity;
  const auto at = [&](int i) -> uint64_t {
    if (fits) return top.candidates[i];
    const int s = i / capacity;
    return i % capacity < splits.counts[s] ? list(s)[i % capacity] : 0;  // 0 is no candidate
  };
  if (thread < 32) {
    const uint64_t least = all <= wanted ? 1 : KthGreatest(at, count, wanted);
    if (thread == 0) splits.least = least;
  }
  __syncthreads();
  for (int i = thread; i < count; i += kThreads) {
    const uint64_t candidate = at(i);
    if (candidate >= splits.least) top.chosen[atomicAdd(&top.count, 1)] = candidate;
  }
  __syncthreads();
}

// grid (centroids, heads)
template <typename T>
__global__ void __launch_bounds__(kThreads) MergeKernel(const ClusteredArgs args) {
  __shared__ Splits splits;
  const auto row = static_cast<int32_t>(blockIdx.x);
  const int head = blockIdx.y;
  const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kCentroids, row));
  const int thread = threadIdx.x;
  const auto value_dim = static_cast<int>(args.shape.value_dim);
  const int32_t* const starts =
      args.workspace.starts + head * (args.centroids + args.sequences) + row + sequence.index;
  if (starts[0] == starts[1]) return;  // an empty cluster
  const KeySplit split = SplitKeys(sequence.keys, sequence.centroids, args.shape.topk);
  const auto splits_count = static_cast<int>(split.count);
  const int64_t partial = head * args.partials +
                          args.Offsets(ClusteredPlan::kPartials)[sequence.index] + row -
                          sequence.centroid_begin;
  const auto stats = [&](int s) {
    return args.workspace.partial_stats + (partial + int64_t{s} * sequence.centroids) * 2;
  };

  const SoftmaxScale scale = SoftmaxScaleOf(args.shape.softmax_scale);
  float greatest = -INFINITY;
  for (int s = 0; s < splits_count; ++s) greatest = fmaxf(greatest, stats(s)[0]);
  const float base = greatest == -INFINITY ? 0 : greatest;
  float sum = 0;
  for (int s = 0; s < splits_count; ++s) {
    sum += stats(s)[1] * Exp2((stats(s)[0] - base) * scale.magnitude);
  }
  for (int s = thread; s < splits_count; s += kThreads)
    splits.factors[s] = Exp2((stats(s)[0] - base) * scale.magnitude);
  if (args.shape.log_sum_exp && thread == 0) {
    args.workspace.log_sums[head * args.centroids + row] = static_cast<float>(
        double{base} * fabsf(args.shape.softmax_scale) + log(static_cast<double>(sum)));
  }
  __syncthreads();

  int top_count = 0;
  Top* const top = DynamicShared<Top>();
  const bool improved = args.shape.topk > 0;
  const int wanted = min(args.shape.topk, sequence.keys);
  if (improved) {
    ChooseTop(args, partial, sequence.centroids, splits_count, wanted, splits, *top);
    // In the order of keys, so that sums over them have a fixed order.
    top_count = min(top->count, wanted);
    int32_t* const keys = args.workspace.top_keys + (head * args.centroids + row) * args.shape.topk;
    for (int i = thread; i < top_count; i += kThreads) {
      const int32_t key = KeyOf(top->chosen[i]);
      int rank = 0;
      for (int j = 0; j < top_count; ++j) rank += KeyOf(top->chosen[j]) < key;
      top->keys[rank] = key;
      top->weights[rank] = Exp2(fmaf(ScoreOf(top->chosen[i]), scale.sign, -base) * scale.magnitude);
      keys[rank] = key;
    }
    __syncthreads();
    if (thread == 0) {
      float mass = 0;
      for (int i = 0; i < top_count; ++i) mass += top->weights[i];
      const int64_t at = head * args.centroids + row;
      args.workspace.masses[at] = top_count == sequence.keys ? 1 : mass / sum;
      args.workspace.top_counts[at] = top_count;
    }
  }

  float* const out = args.workspace.cluster_rows + (head * args.centroids + row) * value_dim;
  for (int e = thread; e < value_dim; e += kThreads) {
    float total = 0;
    for (int s = 0; s < splits_count; ++s) {
      total +=
          splits.factors[s] *
          args.workspace.partial_rows[(partial + int64_t{s} * sequence.centroids) * value_dim + e];
    }
    for (int i = 0; i < top_count; ++i) {
      const T* const value = ValueRow<T>(args, sequence.key_begin + top->keys[i], head);
      total = fmaf(-top->weights[i], ToFloat(value[e]), total);
    }
    // Only rounding errors are left if every key is a top key.
    out[e] = improved && top_count == sequence.keys ? 0 : total / sum;
  }
}

}  // namespace

cudaError_t MergeSplits(const ClusteredArgs& args, const ClusteredPlan&, cudaStream_t stream) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(args.centroids), static_cast<unsigned>(args.shape.heads));
  shape.block = kThreads;
  shape.shared_bytes = args.shape.topk > 0 ? sizeof(Top) : 0;
  return ForElement(args.shape.element,
                    [&]<typename T>() { return Launch(MergeKernel<T>, shape, stream, args); });
}

}  // namespace castor::kernels::cuda
