#include "engine/kernels/cpu/linear/row_parts.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

const RowPartsKernel CASTOR_SIMD_NAME(kRowParts) = {
    Simd::kBackend, &Simd::RunsHere, &RowParts<Simd>::Rotate, &RowParts<Simd>::Multiply};

}  // namespace castor::kernels
