#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/linear.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {
namespace {

// Assembly adds in place: GCC 12 moves sums about, and then has no registers for five of the
// twelve, which costs a quarter of the speed.
struct WidenedInPlace : WidenedSteps<Avx2> {
  static void MultiplyAdd(__m256 x, __m256 w, __m256& sum) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
  }
};

}  // namespace

const LinearKernel kLinearAvx2 = MakeLinearKernel<Avx2, Float32Steps<Avx2>>("cpu-avx2", &HasAvx2);
const LinearKernel kLinearBFloat16Avx2 =
    MakeLinearKernel<Avx2, WidenedInPlace>("cpu-avx2", &HasAvx2);

}  // namespace castor::kernels
