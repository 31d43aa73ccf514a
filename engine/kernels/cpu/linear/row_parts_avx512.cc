#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/row_parts.inl.h"
#include "engine/kernels/cpu/simd_avx512.h"

namespace castor::kernels {

const RowPartsKernel kRowPartsAvx512 = {"cpu-avx512", &HasAvx512, &RowParts<Avx512>::Rotate,
                                        &RowParts<Avx512>::Multiply};

}  // namespace castor::kernels
