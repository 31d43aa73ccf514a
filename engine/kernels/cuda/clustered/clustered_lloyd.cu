// Stage 1 of clustered attention: Lloyd's algorithm in Hamming space, in one launch.
//
// A cluster of blocks owns a sequence and head, each block a range of its queries. Distances come
// from the tensor cores: with bytes x = 64 where a code has a bit and c = -128 where a centroid has
// one, x . c = -2 * 4096 * |code & centroid|. The accumulator starts at 4096 * |centroid| + index,
// so it ends as 4096 * (distance - |code|) + index: its minimum over the centroids is the nearest,
// the lowest index where several are. That is one instruction per distance beside the product.
//
// A block keeps, per cluster, how many of its members have each bit: counts of bits l and l + 32 in
// one word, which lane l of a warp changes. Only queries whose label changed touch them. A block
// updates its share of the centroids from all blocks' counts and writes the new codes to all
// blocks' shared memory; so an iteration costs two barriers of the cluster, and 12 B a query of
// traffic outside it. All of it is integers, so the number of blocks does not affect the result.
//
// Work per query and iteration: 2 * 64 * C operations of int8 and C minima. At 64K queries of 8
// heads, C = 100 and 11 assignments: 77 Tops, about 65 us of mma.sync on 132 multiprocessors
// (popcounts would take 311 us), on the 64 that 8 clusters of 8 blocks fill, 130 us. A warp has 64
// queries at a time, so that a centroid's operand, 15 instructions, serves four products.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/ptx.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kTiles = 4;  // of 16 queries that a warp labels at a time
constexpr int kWarpQueries = 16 * kTiles;
constexpr int kIndexBits = 12;     // of a centroid in a distance's low bits
constexpr int32_t kFar = 1 << 29;  // greater than every distance
static_assert(kFusedClusters <= 1 << kIndexBits);

// A block's shared memory, for `padded` centroids, a multiple of 8; LloydSharedBytes in all.
struct Shared {
  uint64_t* codes;   // [padded] of the centroids
  int32_t* starts;   // [padded]: where each centroid's distances start
  uint32_t* counts;  // [padded, 32]: of bit l in the low half of word l, of bit l + 32 in the high
  int32_t* members;  // [padded]
  int32_t* changed;  // [2]: whether any label did, by the parity of the pass

  __device__ explicit Shared(int padded) {
    codes = DynamicShared<uint64_t>();
    counts = reinterpret_cast<uint32_t*>(codes + padded);
    starts = reinterpret_cast<int32_t*>(counts + padded * 32);
    members = starts + padded;
    changed = members + padded;
  }
};

__device__ int32_t StartOf(uint64_t code, int32_t index) {
  return (__popcll(code) << kIndexBits) + index;
}

// The registers that lane t of a quad gives to the product for `code`: bits 8j + t (+ 4 in odd
// registers) of each half become bit `place` of byte j. Only one thing matters about the bits'
// order in the product's depth: that it is the same for queries and centroids.
template <int place>
__device__ __forceinline__ void Spread(uint64_t code, int t, uint32_t (&registers)[4]) {
  constexpr uint32_t kMask = 0x01010101u << place;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto half = static_cast<uint32_t>(i < 2 ? code : code >> 32);
    const uint32_t top = half << (7 - t - 4 * (i % 2));  // the bits wanted are now bit 7 of bytes
    registers[i] = (top >> (7 - place)) & kMask;
  }
}

// Gives each lane's query its label and moves those whose label changed from one cluster's counts
// to another's; says whether the warp has any.
__device__ bool Move(const Shared& shared, int32_t* labels, bool there, int32_t query,
                     uint64_t code, int32_t label, bool first) {
  const int lane = threadIdx.x % 32;
  const int32_t before = there && !first ? labels[query] : -1;
  const bool moves = there && label != before;
  if (moves) labels[query] = label;
  const unsigned movers = __ballot_sync(kAll, moves);
  for (unsigned left = movers; left != 0; left &= left - 1) {
    const int from = __ffs(left) - 1;
    const uint64_t bits = __shfl_sync(kAll, code, from) >> lane;
    const int32_t to_cluster = __shfl_sync(kAll, label, from);
    const int32_t from_cluster = __shfl_sync(kAll, before, from);
    const auto word = static_cast<uint32_t>(bits & 1) | static_cast<uint32_t>(bits >> 32 & 1) << 16;
    atomicAdd(&shared.counts[to_cluster * 32 + lane], word);
    if (lane == 0) atomicAdd(&shared.members[to_cluster], 1);
    if (from_cluster >= 0) {
      atomicAdd(&shared.counts[from_cluster * 32 + lane], 0u - word);
      if (lane == 0) atomicAdd(&shared.members[from_cluster], -1);
    }
  }
  return movers != 0;
}

// Labels the block's queries, moves those that changed cluster between counts, and says in
// shared.changed[parity] whether any did.
__device__ void Assign(const Shared& shared, const uint64_t* codes, int32_t* labels, int32_t begin,
                       int32_t end, int padded, bool first, int parity) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  bool any = false;
  for (int32_t base = begin + warp * kWarpQueries; base < end; base += kWarps * kWarpQueries) {
    // a[tile][word]: the operand of a tile of 16 queries and a word of their codes.
    uint32_t a[kTiles][2][4];
    int32_t least[kTiles][2];  // of rows g and g + 8
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t query = min(base + tile * 16 + half * 8 + g, end - 1);
        uint32_t spread[4];
        Spread<6>(codes[query], t, spread);
        a[tile][0][half] = spread[0];
        a[tile][0][half + 2] = spread[1];
        a[tile][1][half] = spread[2];
        a[tile][1][half + 2] = spread[3];
        least[tile][half] = kFar;
      }
    }
    for (int c = 0; c < padded; c += 8) {
      uint32_t spread[4];
      Spread<7>(shared.codes[c + g], t, spread);
      const uint32_t low[2] = {spread[0], spread[1]};
      const uint32_t high[2] = {spread[2], spread[3]};
      const int32_t start0 = shared.starts[c + 2 * t];
      const int32_t start1 = shared.starts[c + 2 * t + 1];
      const int32_t starts[4] = {start0, start1, start0, start1};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        int32_t d[4];
        MmaM16N8K32S8(d, a[tile][0], low, starts);
        MmaM16N8K32S8(d, a[tile][1], high, d);
        least[tile][0] = min(least[tile][0], min(d[0], d[1]));
        least[tile][1] = min(least[tile][1], min(d[2], d[3]));
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int32_t& mine = least[tile][half];
        mine = min(mine, __shfl_xor_sync(kAll, mine, 1));
        mine = min(mine, __shfl_xor_sync(kAll, mine, 2));
      }
    }
    // Of each two tiles lane 4g + t takes the query of tile t / 2 and row g + 8 (t % 2).
#pragma unroll
    for (int pair = 0; pair < kTiles; pair += 2) {
      const int32_t query = base + (pair + t / 2) * 16 + t % 2 * 8 + g;
      const int32_t winner = t / 2 == 0 ? (t % 2 == 0 ? least[pair][0] : least[pair][1])
                                        : (t % 2 == 0 ? least[pair + 1][0] : least[pair + 1][1]);
      const bool there = query < end;
      any |= Move(shared, labels, there, query, there ? codes[query] : 0,
                  winner & ((1 << kIndexBits) - 1), first);
    }
  }
  any = __syncthreads_or(any) != 0;
  if (threadIdx.x == 0) shared.changed[parity] = any ? 1 : 0;
}

// New codes of this block's share of the centroids, written to all blocks of the cluster.
__device__ void Update(const Shared& shared, int centroids) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const auto rank = static_cast<int>(ClusterRank());
  const auto blocks = static_cast<int>(ClusterSize());
  for (int c = warp * blocks + rank; c < centroids; c += kWarps * blocks) {
    uint32_t low = 0;
    uint32_t high = 0;
    int32_t members = 0;
#pragma unroll
    for (int b = 0; b < kMostLloydBlocks; ++b) {  // loads that do not wait for each other
      if (b >= blocks) break;
      const uint32_t word = MapShared(shared.counts, b)[c * 32 + lane];
      low += word & 0xffff;
      high += word >> 16;
      members += MapShared(shared.members, b)[c];
    }
    const auto all = static_cast<uint32_t>(members);
    const uint64_t code = uint64_t{__ballot_sync(kAll, 2 * low > all)} |
                          uint64_t{__ballot_sync(kAll, 2 * high > all)} << 32;
    if (members > 0 && lane < blocks) {
      MapShared(shared.codes, lane)[c] = code;
      MapShared(shared.starts, lane)[c] = StartOf(code, c);
    }
  }
}

// grid (sequences * blocks of a cluster, heads)
__global__ void __launch_bounds__(kThreads) LloydKernel(const ClusteredArgs args) {
  WaitForEarlierKernels();
  const SequenceOf sequence(args, static_cast<int32_t>(blockIdx.x / ClusterSize()));
  const int centroids = sequence.centroids;
  const int padded = (centroids + 7) / 8 * 8;
  const Shared shared(padded);
  const int64_t base = blockIdx.y * args.query_tokens + sequence.query_begin;
  const uint64_t* const codes = args.workspace.codes + base;
  int32_t* const labels = args.workspace.labels + base;
  const auto rank = static_cast<int32_t>(ClusterRank());
  const auto blocks = static_cast<int32_t>(ClusterSize());
  // Multiples of what a warp takes at a time.
  const int32_t each =
      (sequence.queries + blocks * kWarpQueries - 1) / (blocks * kWarpQueries) * kWarpQueries;
  const int32_t begin = min(rank * each, sequence.queries);
  const int32_t end = min(begin + each, sequence.queries);

  for (int c = threadIdx.x; c < padded; c += kThreads) {
    uint64_t code = 0;
    if (c < centroids) {
      // A position drawn from stratum c, by the number that belongs to it.
      const int64_t low = int64_t{c} * sequence.queries / centroids;
      const int64_t high = int64_t{c + 1} * sequence.queries / centroids;
      code = codes[low + static_cast<int64_t>((uint64_t{args.problem.draws[c]} *
                                               static_cast<uint64_t>(high - low)) >>
                                              32)];
    }
    shared.codes[c] = code;
    shared.starts[c] = c < centroids ? StartOf(code, c) : kFar;
    shared.members[c] = 0;
  }
  for (int i = threadIdx.x; i < padded * 32; i += kThreads) shared.counts[i] = 0;
  __syncthreads();

  Assign(shared, codes, labels, begin, end, padded, /*first=*/true, 0);
  for (int update = 0; update < args.shape.iterations; ++update) {
    SyncCluster();  // all counts are complete, and all blocks know whether any code moved
    int moved = 0;
    for (int b = 0; b < blocks; ++b) moved |= *MapShared(shared.changed + update % 2, b);
    if (moved == 0) break;
    Update(shared, centroids);
    SyncCluster();  // all centroids are there
    Assign(shared, codes, labels, begin, end, padded, /*first=*/false, (update + 1) % 2);
  }
  SyncCluster();  // no block may exit while another may read its shared memory
}

}  // namespace

cudaError_t ClusterCodes(const ClusteredArgs& args, const ClusteredPlan& plan,
                         cudaStream_t stream) {
  LaunchShape shape;
  shape.cluster = static_cast<unsigned>(plan.lloyd_blocks);
  shape.grid = dim3(shape.cluster * static_cast<unsigned>(args.sequences),
                    static_cast<unsigned>(args.shape.heads));
  shape.block = kThreads;
  shape.shared_bytes = static_cast<size_t>(LloydSharedBytes(plan.most_centroids));
  return LaunchStage(LloydKernel, shape, stream, args);
}

}  // namespace castor::kernels::cuda
