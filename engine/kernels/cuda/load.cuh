// One element of a row as fp32, whatever its storage.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace castor::kernels::cuda {

__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(__half value) { return __half2float(value); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }

}  // namespace castor::kernels::cuda
