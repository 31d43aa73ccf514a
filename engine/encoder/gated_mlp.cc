#include "engine/encoder/gated_mlp.h"

#include <ATen/ops/mul.h>

#include <algorithm>

namespace castor::encoder {

at::Tensor GatedMlp::operator()(const at::Tensor& x) const {
  const int64_t width = out.in();
  const at::Tensor both = in(x);
  // A product of its own: the next matrix wants rows without gaps.
  return out(at::mul(Activate(activation, both.narrow(1, 0, width)), both.narrow(1, width, width)));
}

attention::Count GatedMlp::row_bytes(int64_t element) const {
  using attention::Count;
  const Count width = Count(out.in()) * element;
  const Count result = Count(out.out()) * element;
  const Count activating = activation == Activation::kQuickGelu ? 2 * width : Count(0);
  return 2 * width + std::max(activating, width + result + out.scratch_bytes_of_row());
}

}  // namespace castor::encoder
