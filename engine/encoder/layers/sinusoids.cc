#include "engine/encoder/layers/sinusoids.h"

#include <ATen/ops/empty.h>

#include <cmath>

namespace castor::encoder {

at::Tensor Sinusoids(int64_t positions, int64_t hidden) {
  at::Tensor table = at::empty({positions, hidden}, at::kFloat);
  float* element = table.mutable_data_ptr<float>();
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t e = 0; e < hidden; ++e) {
      const double exponent = static_cast<double>(e / 2 * 2) / static_cast<double>(hidden);
      const double angle = static_cast<double>(p) / std::pow(10'000.0, exponent);
      *element++ = static_cast<float>(e % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return table;
}

}  // namespace castor::encoder
