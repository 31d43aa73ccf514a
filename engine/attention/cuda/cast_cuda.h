// CAST on a GPU, through the kernels of engine/kernels/cuda/cast/cast.h: one row of the variant
// table.
//
// Called on the device's engine thread with its stream current. May throw what LibTorch throws.
#pragma once

#include <string_view>

#include "engine/attention/cuda/variants_cuda.h"
#include "engine/attention/problem.h"

namespace castor::attention::cuda {

// Every sequence of the problem, in the same few launches. Requires CastFits (fits.h).
Computed ComputeCast(std::string_view backend, const Spec& spec, const Problem& problem,
                     at::Device device);

}  // namespace castor::attention::cuda
