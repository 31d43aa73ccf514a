#include "engine/kernels/cpu/attention/flash.inl.h"
#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/simd_avx2.h"

namespace castor::kernels {

const FlashKernel kFlashAvx2 = {"cpu-avx2", &HasAvx2, &Flash<Avx2>::ScratchFloats,
                                &Flash<Avx2>::Pack, &Flash<Avx2>::Run};

}  // namespace castor::kernels
