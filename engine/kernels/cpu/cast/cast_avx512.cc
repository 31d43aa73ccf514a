#include "engine/kernels/cpu/cast/cast.inl.h"
#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/simd_avx512.h"

namespace castor::kernels {

const CastKernel kCastAvx512 = CastOver<Avx512>::Kernel("cpu-avx512", &HasAvx512);

}  // namespace castor::kernels
