// Element types inside kernels, and the choice of a kernel's instance by type and dimension.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/cuda/load.cuh"
#include "engine/kernels/element.h"

namespace castor::kernels::cuda {

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
template <typename T>
__device__ __forceinline__ uint32_t LoadPair(const T* pair) {
  static_assert(sizeof(T) == 2);
  return *reinterpret_cast<const uint32_t*>(pair);
}
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

// Calls launch.template operator()<T, dim>() for the dims that the tensor cores' kernels know.
template <typename T, typename F>
cudaError_t ForDim(int64_t dim, F launch) {
  switch (dim) {
    case 32:
      return launch.template operator()<T, 32>();
    case 64:
      return launch.template operator()<T, 64>();
    case 80:
      return launch.template operator()<T, 80>();
    case 96:
      return launch.template operator()<T, 96>();
    case 128:
      return launch.template operator()<T, 128>();
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename F>
cudaError_t ForHalfAndDim(Element element, int64_t dim, F launch) {
  if (element == Element::kFloat16) return ForDim<__half>(dim, launch);
  if (element == Element::kBFloat16) return ForDim<__nv_bfloat16>(dim, launch);
  return cudaErrorInvalidValue;
}

}  // namespace castor::kernels::cuda
