#include "engine/encoder/layers/feed_forward.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/encoder/layers/rope.h"

namespace castor::encoder {

at::Tensor FeedForward::operator()(const at::Tensor& x) const {
  const at::Tensor wide = in(x, activation);
  if (gated) MultiplyRows(wide, gate(x));
  return out(wide);
}

kernels::Count FeedForward::row_bytes(int64_t element) const {
  using kernels::Count;
  const Count wide = Count(out.in()) * element;
  const Count result = Count(out.out()) * element;
  // No product fuses this activation without a kernel.
  const Count activating = activation == Activation::kQuickGelu ? 2 * wide : Count(0);
  const Count gating = gated ? wide + gate.scratch_bytes_of_row() : Count(0);
  return wide + std::max({activating, Count(in.scratch_bytes_of_row()), gating,
                          result + out.scratch_bytes_of_row()});
}

FeedForward TakeFeedForward(WeightReader& weights, const std::string& at,
                            const FeedForwardNames& names, const FeedForwardConfig& config,
                            int64_t hidden) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  FeedForward taken;
  taken.activation = config.activation;
  taken.gated = config.gated;
  if (config.gated && names.gate.empty()) {
    std::array<Linear, 2> halves =
        TakeLinearHalves(weights, name(names.in), config.width, hidden, config.in_bias);
    taken.in = std::move(halves[names.gate_first ? 1 : 0]);
    taken.gate = std::move(halves[names.gate_first ? 0 : 1]);
  } else {
    taken.in = TakeLinear(weights, name(names.in), config.width, hidden, config.in_bias);
    if (config.gated) {
      taken.gate = TakeLinear(weights, name(names.gate), config.width, hidden, config.in_bias);
    }
  }
  taken.out = TakeLinear(weights, name(names.out), hidden, config.width, config.out_bias);
  return taken;
}

}  // namespace castor::encoder
