// Weights in 8 bits: the nearest multiples of a scale, which each output has for itself, so that
// its greatest weight becomes 127. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/base/aligned.h"

namespace castor::encoder {

struct Weights8 {
  AlignedArray<int8_t> values;  // [out, in], in [-127, 127]
  AlignedArray<float> scales;   // [padded]; 1 where the output's weights are zeros, or not there
  AlignedArray<int32_t> sums;   // [padded], of an output's values
};

// weight: [out, in], float32, contiguous, on the host. `padded` >= out.
Weights8 QuantizeWeights(const at::Tensor& weight, int64_t padded);

}  // namespace castor::encoder
