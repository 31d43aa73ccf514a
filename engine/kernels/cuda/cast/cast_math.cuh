// The functions of CAST's definition on one fp32 number.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/cuda/cast/cast_args.cuh"
#include "engine/kernels/cuda/ptx.cuh"

namespace castor::kernels::cuda {

// MEGA's attention function (arXiv 2209.10655): (1 + erf((x - mu) / (sigma sqrt 2))) / 2, with
// sigma sqrt 2 = 1 / sqrt(2 pi). Uses erfc, which stays accurate where the function is small.
__device__ __forceinline__ float Laplace(float x) {
  constexpr float kMean = 0.70710678118654752f;
  constexpr float kRootOfTwoPi = 2.5066282746310002f;
  return 0.5f * erfcf((kMean - x) * kRootOfTwoPi);
}

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// sp1: 1 + log(1 + e^x), or 1 where the layer has no gate temperature.
__device__ __forceinline__ float GateTemperature(bool gated, float x) {
  return gated ? 1.0f + fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))) : 1.0f;
}

// The softmax's magnitude of the scale times the gate temperature, and laplace's scale times that,
// within the finite numbers.
__device__ __forceinline__ float ScaleFactorOf(const CastArgs& a, float phi) {
  return FiniteProduct(a.scale.magnitude, GateTemperature(a.shape.gated, phi));
}
__device__ __forceinline__ float LaplaceFactorOf(const CastArgs& a, float phi) {
  return FiniteProduct(a.shape.scale, GateTemperature(a.shape.gated, phi));
}

// Converts `sum` from exponents relative to `old_max` to those relative to `new_max`, which are
// `factor` times as large. An empty sum stays empty.
__device__ __forceinline__ float Rescaled(float sum, float old_max, float new_max, float factor) {
  return old_max == new_max ? sum : sum * Exp2(factor * (old_max - new_max));
}

// Pairs (affinity, token) as numbers that are larger for the preferred pair: the higher affinity,
// among equal ones the lower token. NaN is the least affinity. No pair is 0.
__device__ __forceinline__ unsigned long long PairKey(float affinity, int token) {
  uint32_t bits = __float_as_uint(affinity + 0.0f);  // -0 becomes 0
  bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  if (isnan(affinity)) bits = 0;
  return static_cast<unsigned long long>(bits) << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}

}  // namespace castor::kernels::cuda
