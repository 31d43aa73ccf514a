#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/norm.inl.h"
#include "engine/kernels/cpu/simd_avx512.h"

namespace castor::kernels {

const NormKernel kNormAvx512 = {"cpu-avx512", &HasAvx512, &Norm<Avx512>::Run};

}  // namespace castor::kernels
