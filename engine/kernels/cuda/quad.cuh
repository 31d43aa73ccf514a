// Reductions over a quad: the four neighbouring lanes that share a row of a tensor core's result.
#pragma once

#include <cuda_runtime.h>

namespace castor::kernels::cuda {

// In all four lanes.
__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

}  // namespace castor::kernels::cuda
