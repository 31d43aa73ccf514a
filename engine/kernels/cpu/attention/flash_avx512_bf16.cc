#include "engine/kernels/cpu/attention/few_rows.h"
#include "engine/kernels/cpu/attention/flash.inl.h"
#include "engine/kernels/cpu/avx512_bf16.h"
#include "engine/kernels/cpu/cpu_features.h"

namespace castor::kernels {

const FlashKernel kFlashAvx512Bf16 = {
    Avx512Bf16::kBackend,     &HasFastBFloat16Products, &Flash<Avx512Bf16>::ScratchFloats,
    &Flash<Avx512Bf16>::Pack, &Flash<Avx512Bf16>::Run,  &kFewRowsAvx512,
    /*only_bfloat16=*/true};

}  // namespace castor::kernels
