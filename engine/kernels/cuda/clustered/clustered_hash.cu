// Stage 0 of clustered attention: the queries' codes. Bit t of a query's code is set where
// q . normal_t > bias_t.

#include "engine/kernels/cuda/clustered/clustered_args.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/types.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kPlanes = 64;
constexpr unsigned kAll = 0xffffffff;

constexpr int kDepth = 16;  // dimensions that pass through shared memory at a time
constexpr int kThreads = 256;

// grid (query tiles, heads): a thread has 4 queries and 4 planes.
template <typename T>
__global__ void __launch_bounds__(kThreads) HashKernel(const ClusteredArgs args) {
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
    for (int i = thread; i < kDepth * kTokenTile; i += kThreads) {
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

}  // namespace

cudaError_t HashQueries(const ClusteredArgs& args, const ClusteredPlan& plan, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>(plan.total(ClusteredPlan::kQueryTiles));
  const auto heads = static_cast<unsigned>(args.shape.heads);
  const dim3 grid(tiles, heads);
  return ForElement(args.shape.element, [&]<typename T>() {
    return Launch(HashKernel<T>, {grid, kThreads}, stream, args);
  });
}

}  // namespace castor::kernels::cuda
