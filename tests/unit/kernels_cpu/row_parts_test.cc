// Rotations and products against their definitions in double precision, by every kernel that this
// processor can run.

#include "engine/kernels/cpu/linear/row_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/seeded.h"
#include "tests/unit/kernels_cpu/elements.h"

namespace castor::kernels {
namespace {

std::vector<const RowPartsKernel*> RowPartsKernelsHere() {
  std::vector<const RowPartsKernel*> here;
  for (const RowPartsKernel* kernel : kRowPartsKernels) {
    if (kernel->runs_here()) here.push_back(kernel);
  }
  return here;
}

class RowPartsTest : public ::testing::Test, public Seeded {};

TEST_F(RowPartsTest, TurnsHalvesOfTheFirstHeads) {
  for (const RowPartsKernel* kernel : RowPartsKernelsHere()) {
    for (int trial = 0; trial < 40; ++trial) {
      const Element element = trial % 2 == 0 ? Element::kFloat32 : Element::kBFloat16;
      const int64_t heads = Uniform(1, 5), half = Uniform(1, 70), size = 2 * half;
      std::vector<float> cos, sin;
      for (int64_t e = 0; e < half; ++e) {
        const double angle = static_cast<double>(Uniform(0, 6283)) / 1000;
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
      ElementArray row = ElementArray::Random(element, (heads + 1) * size, 1, random_);
      const ElementArray before = row;
      kernel->rotate(element, row.data(), heads, half, cos.data(), sin.data());
      for (int64_t i = 0; i < (heads + 1) * size; ++i) {
        const int64_t e = i % half;
        const double partner = i % size < half ? -before[i + half] : before[i - half];
        const double turned = before[i] * cos[e] + partner * sin[e];
        const double expected = i < heads * size ? turned : before[i];
        ASSERT_NEAR(row[i], expected, 1e-6 + std::abs(expected) * Rounding(element))
            << kernel->backend << " element " << i << " of heads of " << size;
      }
    }
  }
}

TEST_F(RowPartsTest, MultipliesElementByElement) {
  for (const RowPartsKernel* kernel : RowPartsKernelsHere()) {
    for (int trial = 0; trial < 40; ++trial) {
      const Element element = trial % 2 == 0 ? Element::kFloat32 : Element::kBFloat16;
      const int64_t count = Uniform(1, 200);
      ElementArray y = ElementArray::Random(element, count + 1, 1, random_);
      const ElementArray x = ElementArray::Random(element, count + 1, 1, random_);
      const ElementArray before = y;
      kernel->multiply(element, y.data(), x.data(), count);
      for (int64_t i = 0; i <= count; ++i) {
        const double expected = i < count ? before[i] * x[i] : before[i];
        ASSERT_NEAR(y[i], expected, std::abs(expected) * Rounding(element))
            << kernel->backend << " element " << i << " of " << count;
      }
    }
  }
}

}  // namespace
}  // namespace castor::kernels
