#include "engine/kernels/cpu/attention/flash.inl.h"
#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/simd_avx512.h"

namespace castor::kernels {

const FlashKernel kFlashAvx512 = {"cpu-avx512", &HasAvx512, &Flash<Avx512>::ScratchFloats,
                                  &Flash<Avx512>::Pack, &Flash<Avx512>::Run};

}  // namespace castor::kernels
