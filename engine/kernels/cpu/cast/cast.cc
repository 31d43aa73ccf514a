#include "engine/kernels/cpu/cast/cast.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

const CastKernel CASTOR_SIMD_NAME(kCast) = CastOver<Simd>::Kernel(Simd::kBackend, &Simd::RunsHere);

}  // namespace castor::kernels
