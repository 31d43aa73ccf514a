// The scale of a softmax as the kernels apply it, so that every finite scale gives finite weights:
// 2^(magnitude (sign score - greatest)), with `greatest` of the signed scores. Scaling scores
// before they are compared would make infinities of large ones.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>

namespace castor::kernels::cuda {

struct SoftmaxScale {
  float sign = 0;       // -1, 0 or 1
  float magnitude = 1;  // |scale| log2(e); a positive number, since -infinity is multiplied by it
};

__host__ __device__ __forceinline__ SoftmaxScale SoftmaxScaleOf(float scale) {
  constexpr float kLog2E = 1.4426950408889634f;
  constexpr float kLeast = 0x1p-149f;
  if (scale == 0) return {};
  const float magnitude = fabsf(scale) * kLog2E;
  return {scale < 0 ? -1.0f : 1.0f, fminf(fmaxf(magnitude, kLeast), FLT_MAX)};
}

// a * b, or the nearest finite number, so that its product with 0 is 0. NaN becomes finite too.
__device__ __forceinline__ float FiniteProduct(float a, float b) {
  return fmaxf(fminf(a * b, FLT_MAX), -FLT_MAX);
}

}  // namespace castor::kernels::cuda
