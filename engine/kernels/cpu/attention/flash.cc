#include "engine/kernels/cpu/attention/few_rows.h"
#include "engine/kernels/cpu/attention/flash.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

const FlashKernel CASTOR_SIMD_NAME(kFlash) = {
    Simd::kBackend,     &Simd::RunsHere,   &Flash<Simd>::ScratchFloats,
    &Flash<Simd>::Pack, &Flash<Simd>::Run, &CASTOR_SIMD_NAME(kFewRows)};

}  // namespace castor::kernels
