#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/linear.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {
namespace {

// A vector type of its own, so that nothing compiled for this set is used in place of another's.
struct Avx512Bf16 : Avx512 {};

// In assembly, since clang 16 crashes over a loop of the intrinsic.
struct DotSteps : BFloat16Steps<Avx512Bf16> {
  static void MultiplyAdd(__m512 x, __m512 w, __m512& sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
  }
};

}  // namespace

const LinearKernel kLinearBFloat16Avx512Bf16 = MakeLinearKernel<Avx512Bf16, DotSteps>(
    "cpu-avx512-bf16", &HasAvx512Bf16, &HasFastBFloat16Products);

}  // namespace castor::kernels
