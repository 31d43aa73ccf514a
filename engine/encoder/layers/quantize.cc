#include "engine/encoder/layers/quantize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace castor::encoder {
namespace {

// The weights `from` [in] as multiples of the scale that is returned, or zeros, which have 1.
float QuantizeOutput(const float* from, int64_t in, const kernels::LinearKernel& kernel,
                     int8_t* to) {
  float greatest = 0;
  for (int64_t i = 0; i < in; ++i) greatest = std::max(greatest, std::abs(from[i]));
  // Divided by the scale, a weight must not be above 127, so the scale must not be too small for a
  // float.
  float scale = greatest / 127;
  if (!std::isnormal(scale)) {
    std::fill_n(to, in, int8_t{0});
    return 1;
  }
  // What rounding adds may be too much once more. A weight's step is less than a hundredth of 127.
  constexpr double kLeastGrowth = 1.01;
  for (;;) {
    for (int64_t i = 0; i < in; ++i) to[i] = static_cast<int8_t>(std::lrintf(from[i] / scale));
    const double excess = kernel.excess == nullptr ? 0 : kernel.excess(to, in);
    if (excess <= 1) return scale;
    scale *= static_cast<float>(std::max(excess, kLeastGrowth));
  }
}

}  // namespace

Weights8 QuantizeWeights(const at::Tensor& weight, const kernels::LinearKernel& kernel) {
  const int64_t out = weight.size(0), in = weight.size(1);
  const int64_t padded = kernel.panels(out) * kernel.panel_width;
  Weights8 weights{.values = AllocateAligned<int8_t>(out * in),
                   .scales = AllocateAligned<float>(padded),
                   .sums = AllocateAligned<int32_t>(padded)};
  std::fill_n(weights.scales.get(), padded, 1.0F);
  std::fill_n(weights.sums.get(), padded, 0);
  const float* const from = weight.const_data_ptr<float>();
  for (int64_t o = 0; o < out; ++o) {
    int8_t* const values = weights.values.get() + o * in;
    weights.scales[o] = QuantizeOutput(from + o * in, in, kernel, values);
    weights.sums[o] = std::accumulate(values, values + in, int32_t{0});
  }
  return weights;
}

}  // namespace castor::encoder
