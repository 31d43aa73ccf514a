#include "engine/kernels/cpu/linear/norm.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

const NormKernel CASTOR_SIMD_NAME(kNorm) = {Simd::kBackend, &Simd::RunsHere, &Norm<Simd>::Run};

}  // namespace castor::kernels
