// Stage 1 of clustered attention: Lloyd's algorithm in Hamming space, two launches an iteration,
// with counts and centroids in device memory. Once no label of a sequence and head changes, a flag
// makes its later launches return at once. So the number of launches is fixed, and the host need
// not wait and check. All numbers are integers, so the order of the atomic additions does not
// matter.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;
constexpr int kThreads = 256;
constexpr int kStaged = 512;  // centroids that pass through shared memory at a time
constexpr int kBits = 64;

// Set if any label changed in pass `pass`; pass 0 is the assignment to the initial centroids.
__device__ int32_t* ChangesOf(const ClusteredArgs& args, int head, int32_t sequence, int pass) {
  return args.workspace.changes + (int64_t{head} * args.sequences + sequence) * 2 + pass % 2;
}

// grid (centroid blocks, heads)
__global__ void __launch_bounds__(kThreads) StartKernel(const ClusteredArgs args) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= args.centroids) return;
  const int head = blockIdx.y;
  const SequenceOf sequence(
      args, FindSequence(args, ClusteredPlan::kCentroids, static_cast<int32_t>(row)));
  const int64_t c = row - sequence.centroid_begin;
  // A position drawn from stratum c, by the number that belongs to it.
  const int64_t low = c * sequence.queries / sequence.centroids;
  const int64_t high = (c + 1) * sequence.queries / sequence.centroids;
  const int64_t position =
      low + static_cast<int64_t>(
                (uint64_t{args.problem.draws[c]} * static_cast<uint64_t>(high - low)) >> 32);
  const int64_t at = head * args.centroids + row;
  args.workspace.centroid_codes[at] =
      args.workspace.codes[head * args.query_tokens + sequence.query_begin + position];
  args.workspace.member_counts[at] = 0;
  for (int bit = 0; bit < kBits; ++bit) args.workspace.bit_counts[at * kBits + bit] = 0;
  if (c == 0) *ChangesOf(args, head, sequence.index, 0) = 0;
}

// grid (query tiles, heads): a thread has every fourth centroid of a query.
__global__ void __launch_bounds__(kThreads) AssignKernel(const ClusteredArgs args, int pass) {
  static_assert(kThreads == 4 * kTokenTile);
  __shared__ uint64_t centroids[kStaged];
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const int head = blockIdx.y;
  const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kQueryTiles, tile));
  if (pass > 0 && *ChangesOf(args, head, sequence.index, pass - 1) == 0) return;
  const int32_t query =
      (tile - args.Offsets(ClusteredPlan::kQueryTiles)[sequence.index]) * kTokenTile +
      static_cast<int32_t>(threadIdx.x) / 4;
  const int part = threadIdx.x % 4;
  const bool there = query < sequence.queries;
  const int64_t at = head * args.query_tokens + sequence.query_begin + query;
  const uint64_t code = there ? args.workspace.codes[at] : 0;
  const int64_t first = head * args.centroids + sequence.centroid_begin;

  // (distance, index) as one number, so that ties go to the lower index.
  uint64_t least = ~uint64_t{0};
  for (int32_t begin = 0; begin < sequence.centroids; begin += kStaged) {
    const int32_t count = min(sequence.centroids - begin, kStaged);
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kThreads) {
      centroids[i] = args.workspace.centroid_codes[first + begin + i];
    }
    __syncthreads();
    for (int i = part; i < count; i += 4) {
      const auto distance = static_cast<uint64_t>(__popcll(code ^ centroids[i]));
      least = min(least, distance << 32 | static_cast<uint32_t>(begin + i));
    }
  }
  least = min(least, __shfl_xor_sync(kAll, least, 1));
  least = min(least, __shfl_xor_sync(kAll, least, 2));
  const auto label = static_cast<int32_t>(least & 0xffffffff);
  const int32_t before = there && pass > 0 ? args.workspace.labels[at] : -1;
  __syncwarp();  // all have read the old label before one of them writes the new one
  if (!there || label == before) return;
  // The four threads of a query divide its bits among them.
  const auto add = [&](int32_t cluster, int32_t sign) {
    for (int bit = part; bit < kBits; bit += 4) {
      if (code >> bit & 1) {
        atomicAdd(&args.workspace.bit_counts[(first + cluster) * kBits + bit], sign);
      }
    }
    if (part == 0) atomicAdd(&args.workspace.member_counts[first + cluster], sign);
  };
  add(label, 1);
  if (before >= 0) add(before, -1);
  if (part != 0) return;
  args.workspace.labels[at] = label;
  atomicOr(ChangesOf(args, head, sequence.index, pass), 1);
}

// grid (centroid blocks of a warp each, heads)
__global__ void __launch_bounds__(kThreads) UpdateKernel(const ClusteredArgs args, int pass) {
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (row >= args.centroids) return;
  const int head = blockIdx.y;
  const int32_t sequence = FindSequence(args, ClusteredPlan::kCentroids, static_cast<int32_t>(row));
  const bool first = row == args.Offsets(ClusteredPlan::kCentroids)[sequence];
  if (first && lane == 0) *ChangesOf(args, head, sequence, pass) = 0;
  if (*ChangesOf(args, head, sequence, pass - 1) == 0) return;
  const int64_t at = head * args.centroids + row;
  const int32_t members = args.workspace.member_counts[at];
  if (members == 0) return;
  const int32_t* const counts = args.workspace.bit_counts + at * kBits;
  const uint64_t code = uint64_t{__ballot_sync(kAll, 2 * counts[lane] > members)} |
                        uint64_t{__ballot_sync(kAll, 2 * counts[lane + 32] > members)} << 32;
  if (lane == 0) args.workspace.centroid_codes[at] = code;
}

}  // namespace

cudaError_t ClusterCodes(const ClusteredArgs& args, const ClusteredPlan& plan,
                         cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(args.shape.heads);
  const dim3 rows(static_cast<unsigned>((args.centroids + kThreads - 1) / kThreads), heads);
  const dim3 warps(static_cast<unsigned>((args.centroids * 32 + kThreads - 1) / kThreads), heads);
  const dim3 tiles(static_cast<unsigned>(plan.total(ClusteredPlan::kQueryTiles)), heads);
  cudaError_t error = Launch(StartKernel, {rows, kThreads}, stream, args);
  if (error == cudaSuccess) error = Launch(AssignKernel, {tiles, kThreads}, stream, args, 0);
  for (int pass = 1; error == cudaSuccess && pass <= args.shape.iterations; ++pass) {
    error = Launch(UpdateKernel, {warps, kThreads}, stream, args, pass);
    if (error == cudaSuccess) error = Launch(AssignKernel, {tiles, kThreads}, stream, args, pass);
  }
  return error;
}

}  // namespace castor::kernels::cuda
