// Element types inside kernels, and the choice of a kernel's instance by type and dimension.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/element.h"

namespace castor::kernels::cuda {

// One element as fp32, whatever its storage.
__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(__half value) { return __half2float(value); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }

// The nearest T.
template <typename T>
__device__ __forceinline__ T FromFloat(float value);
template <>
__device__ __forceinline__ float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half FromFloat<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Two neighbours of a half type in a register of the tensor core: the first in the low bits.
__device__ __forceinline__ uint32_t PackPair(__half2 pair) {
  return static_cast<uint32_t>(__half_as_ushort(pair.x)) |
         static_cast<uint32_t>(__half_as_ushort(pair.y)) << 16;
}
__device__ __forceinline__ uint32_t PackPair(__nv_bfloat162 pair) {
  return static_cast<uint32_t>(__bfloat16_as_ushort(pair.x)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
}
template <typename T>
__device__ __forceinline__ uint32_t RoundPair(float low, float high);
template <>
__device__ __forceinline__ uint32_t RoundPair<__half>(float low, float high) {
  return PackPair(__floats2half2_rn(low, high));
}
template <>
__device__ __forceinline__ uint32_t RoundPair<__nv_bfloat16>(float low, float high) {
  return PackPair(__floats2bfloat162_rn(low, high));
}

// Calls launch.template operator()<T>() with the element's type.
template <typename F>
cudaError_t ForElement(Element element, F launch) {
  switch (element) {
    case Element::kFloat32:
      return launch.template operator()<float>();
    case Element::kFloat16:
      return launch.template operator()<__half>();
    case Element::kBFloat16:
      return launch.template operator()<__nv_bfloat16>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace castor::kernels::cuda
