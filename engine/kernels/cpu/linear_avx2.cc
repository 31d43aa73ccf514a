#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear.inl.h"
#include "engine/kernels/cpu/simd_avx2.h"

namespace castor::kernels {

const LinearKernel kLinearAvx2 = MakeLinearKernel<Avx2, Float32Steps<Avx2>>("cpu-avx2", &HasAvx2);
const LinearKernel kLinearBFloat16Avx2 =
    MakeLinearKernel<Avx2, BFloat16Steps<Avx2>>("cpu-avx2", &HasAvx2);

}  // namespace castor::kernels
