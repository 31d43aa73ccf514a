// Stage 0 of clustered attention: the queries' codes. Bit t of a query's code is set where
// q . normal_t > bias_t.
//
// Half types on the tensor cores: a product of 64 planes per query and head, with the planes split
// into 2 (fp16) or 3 (bf16) terms of the queries' type, so that they keep 22 and 24 bits. Floor per
// query and head at d = 64: 128 B read, 8 B written, 3 * 8192 flop; 64K queries of 8 heads are 17
// us of memory and about 20 us of mma.sync. Everything else: fp32 FMA from shared memory.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/load.cuh"
#include "engine/kernels/cuda/ptx.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kPlanes = 64;
constexpr unsigned kAll = 0xffffffff;

// ---- generic
// -------------------------------------------------------------------------------------

constexpr int kDepth = 16;  // dimensions that pass through shared memory at a time
constexpr int kGenericThreads = 256;

// grid (query tiles, heads): a thread has 4 queries and 4 planes.
template <typename T>
__global__ void __launch_bounds__(kGenericThreads) HashKernel(const ClusteredArgs args) {
  WaitForEarlierKernels();
  __shared__ float queries[kDepth][kTokenTile + 4];
  __shared__ float planes[kDepth][kPlanes + 4];
  const auto tile = static_cast<int32_t>(blockIdx.x);
  const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kQueryTiles, tile));
  const int32_t first =
      (tile - args.Offsets(ClusteredPlan::kQueryTiles)[sequence.index]) * kTokenTile;
  const int head = blockIdx.y;
  const auto dim = static_cast<int>(args.shape.head_dim);
  const int thread = threadIdx.x;
  const int plane0 = thread % 16 * 4;
  const int query0 = thread / 16 * 4;

  float products[4][4] = {};
  for (int e0 = 0; e0 < dim; e0 += kDepth) {
    for (int i = thread; i < kDepth * kTokenTile; i += kGenericThreads) {
      const int row = i / kDepth;
      const int e = i % kDepth;
      const int32_t query = first + row;
      const bool there = query < sequence.queries && e0 + e < dim;
      queries[e][row] = there ? ToFloat(RowOf<T>(args.problem.query, sequence.query_begin + query,
                                                 args.problem.query_stride, head, dim)[e0 + e])
                              : 0;
      planes[e][row] = row < args.shape.bits && e0 + e < dim
                           ? args.problem.normals[int64_t{row} * dim + e0 + e]
                           : 0;
    }
    __syncthreads();
    for (int e = 0; e < kDepth; ++e) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          products[i][j] = fmaf(queries[e][query0 + i], planes[e][plane0 + j], products[i][j]);
        }
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint64_t code = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int plane = plane0 + j;
      if (plane < args.shape.bits && products[i][j] > args.problem.biases[plane]) {
        code |= uint64_t{1} << plane;
      }
    }
    for (int step = 1; step < 16; step *= 2) code |= __shfl_xor_sync(kAll, code, step);
    const int32_t query = first + query0 + i;
    if (plane0 == 0 && query < sequence.queries) {
      args.workspace.codes[head * args.query_tokens + sequence.query_begin + query] = code;
    }
  }
}

// ---- tensor cores
// --------------------------------------------------------------------------------

constexpr int kMmaThreads = 128;
constexpr int kWarpTiles = 2;   // of 16 queries: half a query tile
constexpr int kBlockTiles = 4;  // query tiles that share a block's planes; two at a time
static_assert(kMmaThreads / 32 * kWarpTiles * 16 == 2 * kTokenTile);

template <typename T>
constexpr int kTerms = 3;
template <>
constexpr int kTerms<__half> = 2;

template <int dim>
constexpr int kPlaneStride = dim + 8;  // keeps the rows of a fragment on different banks

template <typename T, int dim>
constexpr size_t kMmaShared = sizeof(T) * kTerms<T> * kPlanes * kPlaneStride<dim>;

// The codes of 32 queries of one sequence from `first` on; a warp's work.
template <typename T, int dim>
__device__ void HashRows(const ClusteredArgs& args, const SequenceOf& sequence, int head,
                         int32_t first, const T* planes) {
  constexpr int kStride = kPlaneStride<dim>;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  // Rows g and g + 8 of each tile; those beyond the sequence repeat its last.
  uint32_t a[kWarpTiles][dim / 16][4];
#pragma unroll
  for (int tile = 0; tile < kWarpTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t query = min(first + tile * 16 + half * 8 + g, sequence.queries - 1);
      const T* const row = RowOf<T>(args.problem.query, sequence.query_begin + query,
                                    args.problem.query_stride, head, dim) +
                           2 * t;
#pragma unroll
      for (int k = 0; k < dim / 16; ++k) {
        a[tile][k][half] = LoadPair(row + k * 16);
        a[tile][k][half + 2] = LoadPair(row + k * 16 + 8);
      }
    }
  }

  uint64_t codes[kWarpTiles][2] = {};
  for (int plane0 = 0; plane0 < kPlanes; plane0 += 8) {
    float d[kWarpTiles][4] = {};
    // The small terms first, so that they do not vanish beside the large one's sum.
#pragma unroll
    for (int term = kTerms<T> - 1; term >= 0; --term) {
      const T* const plane = planes + (term * kPlanes + plane0 + g) * kStride + 2 * t;
#pragma unroll
      for (int k = 0; k < dim / 16; ++k) {
        const uint32_t b[2] = {LoadPair(plane + k * 16), LoadPair(plane + k * 16 + 8)};
#pragma unroll
        for (int tile = 0; tile < kWarpTiles; ++tile) MmaM16N8K16<T>(d[tile], a[tile][k], b);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int plane = plane0 + 2 * t + i % 2;
      if (plane >= args.shape.bits) continue;
      const float bias = args.problem.biases[plane];
#pragma unroll
      for (int tile = 0; tile < kWarpTiles; ++tile) {
        if (d[tile][i] > bias) codes[tile][i / 2] |= uint64_t{1} << plane;
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kWarpTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint64_t code = codes[tile][half];
      code |= __shfl_xor_sync(kAll, code, 1);
      code |= __shfl_xor_sync(kAll, code, 2);
      const int32_t query = first + tile * 16 + half * 8 + g;
      if (t == 0 && query < sequence.queries) {
        args.workspace.codes[head * args.query_tokens + sequence.query_begin + query] = code;
      }
    }
  }
}

// grid (query tiles in fours, heads): two warps have a tile.
template <typename T, int dim>
__global__ void __launch_bounds__(kMmaThreads)
    HashMmaKernel(const ClusteredArgs args, const int32_t tiles) {
  WaitForEarlierKernels();
  T* const planes = DynamicShared<T>();  // [terms, planes, stride]
  for (int i = threadIdx.x; i < kPlanes * dim; i += kMmaThreads) {
    const int plane = i / dim;
    float rest = plane < args.shape.bits ? args.problem.normals[i] : 0;
#pragma unroll
    for (int term = 0; term < kTerms<T>; ++term) {
      const T part = FromFloat<T>(rest);
      planes[(term * kPlanes + plane) * kPlaneStride<dim> + i % dim] = part;
      rest -= ToFloat(part);
    }
  }
  __syncthreads();
  const auto block_tile = static_cast<int32_t>(blockIdx.x) * kBlockTiles;
  const int warp = threadIdx.x / 32;
  const int32_t end = min(block_tile + kBlockTiles, tiles);
  for (int32_t tile = block_tile + warp / 2; tile < end; tile += 2) {
    const SequenceOf sequence(args, FindSequence(args, ClusteredPlan::kQueryTiles, tile));
    const int32_t first =
        (tile - args.Offsets(ClusteredPlan::kQueryTiles)[sequence.index]) * kTokenTile +
        warp % 2 * (kTokenTile / 2);
    if (first < sequence.queries) {
      HashRows<T, dim>(args, sequence, static_cast<int>(blockIdx.y), first, planes);
    }
  }
}

}  // namespace

cudaError_t HashQueries(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>(plan.total(ClusteredPlan::kQueryTiles));
  const auto heads = static_cast<unsigned>(args.shape.heads);
  if (plan.tensor_cores) {
    const dim3 grid((tiles + kBlockTiles - 1) / kBlockTiles, heads);
    return ForHalfAndDim(args.shape.element, args.shape.head_dim, [&]<typename T, int dim>() {
      return LaunchStage(HashMmaKernel<T, dim>, {grid, kMmaThreads, kMmaShared<T, dim>}, stream,
                         args, static_cast<int32_t>(tiles));
    });
  }
  const dim3 grid(tiles, heads);
  return ForElement(args.shape.element, [&]<typename T>() {
    return LaunchStage(HashKernel<T>, {grid, kGenericThreads}, stream, args);
  });
}

}  // namespace castor::kernels::cuda
