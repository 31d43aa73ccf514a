#include "engine/kernels/cpu/cpu_features.h"
#include "engine/kernels/cpu/linear/row_parts.inl.h"
#include "engine/kernels/cpu/simd_avx2.h"

namespace castor::kernels {

const RowPartsKernel kRowPartsAvx2 = {"cpu-avx2", &HasAvx2, &RowParts<Avx2>::Rotate,
                                      &RowParts<Avx2>::Multiply};

}  // namespace castor::kernels
