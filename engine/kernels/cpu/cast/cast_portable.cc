#include "engine/kernels/cpu/cast/cast.inl.h"
#include "engine/kernels/cpu/simd_portable.h"

namespace castor::kernels {

const CastKernel kCastPortable = CastOver<Portable>::Kernel(
    "cpu-portable", +[] { return true; });

}  // namespace castor::kernels
