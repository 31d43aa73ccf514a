#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/linear.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

const LinearKernel kLinearAvx512 =
    MakeLinearKernel<Avx512, Float32Steps<Avx512>>("cpu-avx512", &HasAvx512);
const LinearKernel kLinearBFloat16Avx512 =
    MakeLinearKernel<Avx512, WidenedSteps<Avx512>>("cpu-avx512", &HasAvx512);

}  // namespace castor::kernels
