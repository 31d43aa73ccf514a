// Step 3 of CAST: the clusters, from the affinities. Integers all the way: the same affinities give
// the same clusters as the plain loops of the twin, bit for bit.
//
// TOP_K: a block a cluster; its row of affinities is read about four times, from L2 after the
// first. Cost: 4 N N_c bytes from memory and three times that from L2; 64K x 256 16 us and 37 us.

#include "engine/kernels/cuda/cast/cast_select.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kThreads = 512;

// grid (rows), block kThreads
__global__ void __launch_bounds__(kThreads) TopKernel(const CastArgs a) {
  SelectShared& shared = *DynamicShared<SelectShared>();
  const CastRow row = RowOf(a, int64_t{blockIdx.x});
  const float* const affinities = a.affinities + row.affinity;
  const auto key = [&](int j) { return PairKey(affinities[j], j); };
  const unsigned long long bound =
      row.size < row.tokens ? SelectBound(key, row.tokens, row.size, shared) : 0;
  WriteMembers(
      a, row, [&](int j) { return key(j) >= bound; }, shared);
}

}  // namespace

cudaError_t RunCastClusters(const CastArgs& args, int64_t tiles128, cudaStream_t stream) {
  if (args.shape.single_assignment) return RunCastAssignment(args, tiles128, stream);
  const int64_t rows = int64_t{args.sequences} * args.clusterings * args.shape.clusters;
  return Launch(TopKernel,
                {dim3(static_cast<unsigned>(rows)), dim3(kThreads), sizeof(SelectShared)}, stream,
                args);
}

}  // namespace castor::kernels::cuda
