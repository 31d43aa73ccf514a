#include "engine/kernels/cpu/cast/cast.inl.h"
#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/simd_avx2.h"

namespace castor::kernels {

const CastKernel kCastAvx2 = CastOver<Avx2>::Kernel("cpu-avx2", &HasAvx2);

}  // namespace castor::kernels
