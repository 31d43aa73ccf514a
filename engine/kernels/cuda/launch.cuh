// How our kernels are launched: through the runtime's extended call, which supports clusters and
// stream capture. Tests replace it by an emulator (tests/support/cuda/emulator.h).
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace castor::kernels::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;     // blocks along x that share their shared memory; needs sm_90
  bool early = false;       // may start before the stream's last kernel ends; needs sm_90
};

// Queues `kernel` on `stream`. An `early` kernel calls WaitForEarlierKernels (ptx.cuh) first. An
// empty grid is not launched. Allocates nothing and waits for nothing.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                   Arguments&&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return cudaSuccess;
  constexpr size_t kSharedWithoutAsking = 48 * 1024;
  if (shape.shared_bytes > kSharedWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  if (shape.early) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  config.attrs = attributes;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace castor::kernels::cuda
