#include "engine/encoder/quantize.h"

#include <algorithm>
#include <cmath>

namespace castor::encoder {

Weights8 QuantizeWeights(const at::Tensor& weight, int64_t padded) {
  const int64_t out = weight.size(0), in = weight.size(1);
  Weights8 weights{.values = AllocateAligned<int8_t>(out * in),
                   .scales = AllocateAligned<float>(padded),
                   .sums = AllocateAligned<int32_t>(padded)};
  std::fill_n(weights.scales.get(), padded, 1.0F);
  std::fill_n(weights.sums.get(), padded, 0);
  const float* const from = weight.const_data_ptr<float>();
  for (int64_t o = 0; o < out; ++o) {
    float greatest = 0;
    for (int64_t i = 0; i < in; ++i) greatest = std::max(greatest, std::abs(from[o * in + i]));
    // Divided by the scale, a weight must not be above 127, so the scale must not be too small for
    // a float.
    const float scale = greatest / 127;
    if (!std::isnormal(scale)) {
      std::fill_n(weights.values.get() + o * in, in, int8_t{0});
      continue;
    }
    int32_t sum = 0;
    for (int64_t i = 0; i < in; ++i) {
      const auto value = static_cast<int8_t>(std::lrintf(from[o * in + i] / scale));
      weights.values[o * in + i] = value;
      sum += value;
    }
    weights.scales[o] = scale;
    weights.sums[o] = sum;
  }
  return weights;
}

}  // namespace castor::encoder
