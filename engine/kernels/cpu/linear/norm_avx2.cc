#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/norm.inl.h"
#include "engine/kernels/cpu/simd_avx2.h"

namespace castor::kernels {

const NormKernel kNormAvx2 = {"cpu-avx2", &HasAvx2, &Norm<Avx2>::Run};

}  // namespace castor::kernels
