#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/linear.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {
namespace {

// Assembly adds in place: GCC 12 moves sums about, and then has no registers for five of the
// twelve, which costs a quarter of the speed.
struct WidenedInPlace : WidenedSteps<Avx2> {
  static constexpr int kUnrolled = 1;

  // The mask stays in memory: the sums, two weights and an input take all registers but one.
  static __m256 Weights(const uint32_t* p, int part) {
    static constexpr uint32_t kHigh = 0xffff0000;
    alignas(32) static constexpr uint32_t kMask[8] = {kHigh, kHigh, kHigh, kHigh,
                                                      kHigh, kHigh, kHigh, kHigh};
    if (part == 0) return WidenedSteps<Avx2>::Weights(p, part);
    __m256 high;
    asm("vandps %2, %1, %0" : "=x"(high) : "x"(Load(p)), "m"(kMask));
    return high;
  }
  static void MultiplyAdd(__m256 x, __m256 w, __m256& sum) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
  }
};

}  // namespace

const LinearKernel kLinearAvx2 = MakeLinearKernel<Avx2, Float32Steps<Avx2>>("cpu-avx2", &HasAvx2);
const LinearKernel kLinearBFloat16Avx2 =
    MakeLinearKernel<Avx2, WidenedInPlace>("cpu-avx2", &HasAvx2);

}  // namespace castor::kernels
