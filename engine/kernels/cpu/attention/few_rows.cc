#include "engine/kernels/cpu/attention/few_rows.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

const FewRowsKernel CASTOR_SIMD_NAME(kFewRows) = {
    &FewRowsPart<Simd>::ScratchFloats, &FewRowsPart<Simd>::Attend, &FewRowsPart<Simd>::Join};

}  // namespace castor::kernels
