// AVX-512 with products of bfloat16.
#pragma once

#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

// A vector type of its own, so that nothing compiled for this set is used in place of another's.
struct Avx512Bf16 : Avx512 {
  static constexpr char kBackend[] = "cpu-avx512-bf16";
  static bool RunsHere() { return HasAvx512Bf16(); }

  static constexpr bool kHasPairs = true;
  // In assembly, since clang 16 crashes over a loop of the intrinsic.
  static Vec MultiplyAddPairs(Vec a, Vec b, Vec c) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
  }
};

}  // namespace castor::kernels
