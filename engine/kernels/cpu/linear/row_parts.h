// Operations of encoders on rows between products, in place: rotations of heads, and products
// element by element. Arithmetic is float32 for all elements. Functions are re-entrant; a row's
// result depends on that row alone.
#pragma once

#include <array>
#include <cstdint>

#include "engine/kernels/element.h"

namespace castor::kernels {

// One instruction set's implementation.
struct RowPartsKernel {
  const char* backend;  // "cpu-avx512"
  bool (*runs_here)();  // whether this processor has the instructions

  // Turns the first `heads` heads of a row: element e of a head with element e + half by the angle
  // whose cosine and sine are cos[e] and sin[e].
  void (*rotate)(Element element, void* row, int64_t heads, int64_t half, const float* cos,
                 const float* sin);

  // y *= x.
  void (*multiply)(Element element, void* y, const void* x, int64_t count);
};

extern const RowPartsKernel kRowPartsAvx512;
extern const RowPartsKernel kRowPartsAvx2;

// The kernels of this build, best first.
#if defined(__x86_64__)
inline constexpr const RowPartsKernel* kRowPartsKernels[] = {&kRowPartsAvx512, &kRowPartsAvx2};
#else
inline constexpr std::array<const RowPartsKernel*, 0> kRowPartsKernels = {};
#endif

}  // namespace castor::kernels
