// The GPU's side of engine/kernels/pool_rows.h. All pointers are to device memory; both queue on
// `stream`, allocate nothing and wait for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/kernels/pool_rows.h"

namespace castor::kernels::cuda {

// Requires sequences <= 2^31 - 1.
cudaError_t Run(const PoolRows& problem, cudaStream_t stream);
cudaError_t Run(const FlagNonFinite& problem, cudaStream_t stream);

}  // namespace castor::kernels::cuda
