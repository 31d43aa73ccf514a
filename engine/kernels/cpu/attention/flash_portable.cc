#include "engine/kernels/cpu/attention/flash.inl.h"
#include "engine/kernels/cpu/simd_portable.h"

namespace castor::kernels {

const FlashKernel kFlashPortable = {"cpu-portable", +[] { return true; },
                                    &Flash<Portable>::ScratchFloats, &Flash<Portable>::Pack,
                                    &Flash<Portable>::Run};

}  // namespace castor::kernels
