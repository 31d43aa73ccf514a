// Clustered and improved clustered attention on a GPU, through the kernels of
// engine/kernels/cuda/clustered.h: rows of the variant table.
//
// Called on the device's engine thread with its stream current, but for what says whether a row
// fits and how much memory it takes, which is pure. ComputeClustered may throw what LibTorch
// throws.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/attention/cuda/variants_cuda.h"
#include "engine/attention/problem.h"

namespace castor::attention::cuda {

// Both hold for either kernel.
bool ClusteredMmaFits(const Spec& spec);      // tensor cores: half types, the usual dims
bool ClusteredGenericFits(const Spec& spec);  // everything that grids and int32 can hold

// Every sequence of the problem, in the same few launches.
Computed ComputeClusteredMma(std::string_view backend, const Spec& spec, const Problem& problem,
                             at::Device device);
Computed ComputeClusteredGeneric(std::string_view backend, const Spec& spec, const Problem& problem,
                                 at::Device device);

int64_t ClusteredWorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k);

}  // namespace castor::attention::cuda
