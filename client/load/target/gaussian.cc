#include "client/load/target/gaussian.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace castor::load {
namespace {

constexpr size_t kTable = size_t{1} << 20;
constexpr size_t kWindow = 4096;  // values between two draws of an offset
constexpr float kNoise = 0.3F;    // of structured rows, beside centres of unit variance

// By Box and Muller, from a fixed seed.
const std::vector<float>& Table() {
  static const std::vector<float> table = [] {
    std::vector<float> values(kTable);
    Random random(20);
    for (size_t i = 0; i < kTable; i += 2) {
      const double radius = std::sqrt(-2 * std::log(Uniform(random)));
      const double angle = 2 * std::numbers::pi * Uniform(random);
      values[i] = static_cast<float>(radius * std::cos(angle));
      values[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    return values;
  }();
  return table;
}

}  // namespace

void FillGaussian(std::span<float> values, Random& random) {
  const std::vector<float>& table = Table();
  for (size_t i = 0; i < values.size(); i += kWindow) {
    const size_t count = std::min(kWindow, values.size() - i);
    const size_t offset = Below(kTable - kWindow, random);
    std::copy_n(table.begin() + static_cast<ptrdiff_t>(offset), count,
                values.begin() + static_cast<ptrdiff_t>(i));
  }
}

void FillStructured(std::span<float> values, int64_t width, int64_t centres, Random& random) {
  std::vector<float> centre(static_cast<size_t>(width * centres));
  FillGaussian(centre, random);
  FillGaussian(values, random);
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(width)) {
    const float* of = centre.data() + Below(static_cast<uint64_t>(centres), random) * width;
    for (int64_t i = 0; i < width; ++i) values[row + i] = of[i] + kNoise * values[row + i];
  }
}

}  // namespace castor::load
