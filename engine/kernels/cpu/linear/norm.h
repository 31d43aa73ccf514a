// LayerNorm or RMSNorm of rows, or of their sum with others (a residual connection). Arithmetic is
// float32, whatever the elements are. Functions are re-entrant; a row's result depends on that row
// alone.
#pragma once

#include <array>
#include <cstdint>

#include "engine/kernels/element.h"

namespace castor::kernels {

// All rows are contiguous, one after another, [rows, hidden] of `element`.
struct NormShape {
  Element element = Element::kFloat32;
  int64_t hidden = 0;
  const float* weight = nullptr;  // [hidden]
  const float* bias = nullptr;    // [hidden], or null
  float epsilon = 0;
  bool centered = true;  // LayerNorm; RMSNorm (arXiv 1910.07467) takes the mean for zero
};

// One instruction set's implementation.
struct NormKernel {
  const char* backend;  // "cpu-avx512"
  bool (*runs_here)();  // whether this processor has the instructions

  // y = norm(x + residual); `residual` may be null, and y may be either of them.
  void (*run)(const NormShape& shape, const void* x, const void* residual, void* y, int64_t rows);
};

extern const NormKernel kNormAvx512;
extern const NormKernel kNormAvx2;

// The kernels of this build, best first.
#if defined(__x86_64__)
inline constexpr const NormKernel* kNormKernels[] = {&kNormAvx512, &kNormAvx2};
#else
inline constexpr std::array<const NormKernel*, 0> kNormKernels = {};
#endif

}  // namespace castor::kernels
