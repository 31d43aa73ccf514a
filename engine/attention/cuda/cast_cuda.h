// CAST on a GPU, through the kernels of engine/kernels/cuda/cast.h: one row of the variant table.
//
// Called on the device's engine thread with its stream current, but for CastFits and
// CastWorkspaceBytes, which are pure. ComputeCast may throw what LibTorch throws.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/attention/cuda/variants_cuda.h"
#include "engine/attention/problem.h"

namespace castor::attention::cuda {

// Whether the kernels can run it: any dims, any number of clusters that grids and int32 can hold.
bool CastFits(const Spec& spec);

// Every sequence of the problem, in the same few launches.
Computed ComputeCast(std::string_view backend, const Spec& spec, const Problem& problem,
                     at::Device device);

int64_t CastWorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                           std::span<const int32_t> cu_seqlens_k);

}  // namespace castor::attention::cuda
