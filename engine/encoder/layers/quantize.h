// Weights in 8 bits: the nearest multiples of a scale, which each output has for itself: the least
// that takes none of its weights beyond 127, and that the kernel's sums are exact for. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/base/aligned.h"
#include "engine/kernels/cpu/linear/linear.h"

namespace castor::encoder {

struct Weights8 {
  AlignedArray<int8_t> values;  // [out, in], in [-127, 127]
  AlignedArray<float> scales;   // [padded]; 1 where the output's weights are zeros, or not there
  AlignedArray<int32_t> sums;   // [padded], of an output's values
};

// weight: [out, in], float32, contiguous, on the host. `kernel` is one for int8, whose
// panels hold `padded` outputs.
Weights8 QuantizeWeights(const at::Tensor& weight, const kernels::LinearKernel& kernel);

}  // namespace castor::encoder
