// The problems that the kernels of clustered attention and CAST can run on a GPU, and the memory
// that they need. Pure functions; any thread may call them. They use no tensor library and no CUDA,
// so tests need no GPU. No request can make their arithmetic wrap.
#pragma once

#include <cstdint>
#include <span>

#include "engine/attention/problem.h"

namespace castor::attention::cuda {

// Both take any dims up to 2^20 and any number of clusters that grids and int32 can hold.
// ClusteredFits covers both clustered kernels, as their paper defines them.
bool ClusteredFits(const Spec& spec);
bool CastFits(const Spec& spec);

// Bytes without the tensors, see Variant::workspace_bytes. Requires that the kernel fits.
int64_t ClusteredWorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k);
int64_t CastWorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                           std::span<const int32_t> cu_seqlens_k);

}  // namespace castor::attention::cuda
