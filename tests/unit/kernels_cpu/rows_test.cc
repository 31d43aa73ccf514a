// LayerNorm and RMSNorm against their definitions in double precision, by every kernel that this
// processor can run.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/kernels/cpu/linear/norm.h"
#include "engine/kernels/cpu/linear/row_parts.h"
#include "tests/support/seeded.h"
#include "tests/unit/kernels_cpu/elements.h"

namespace castor::kernels {
namespace {

std::vector<const NormKernel*> NormKernelsHere() {
  std::vector<const NormKernel*> here;
  for (const NormKernel* kernel : kNormKernels) {
    if (kernel->runs_here()) here.push_back(kernel);
  }
  return here;
}

struct Weights {
  std::vector<float> weight, bias;

  Weights(int64_t hidden, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int64_t e = 0; e < hidden; ++e) {
      weight.push_back(normal(random));
      bias.push_back(normal(random));
    }
  }
};

class NormKernelTest : public ::testing::Test, public Seeded {};

TEST_F(NormKernelTest, IsTheNormByItsDefinition) {
  for (const NormKernel* kernel : NormKernelsHere()) {
    for (int trial = 0; trial < 60; ++trial) {
      const Element element = trial % 2 == 0 ? Element::kFloat32 : Element::kBFloat16;
      const int64_t hidden = Uniform(2, 201);
      const int64_t rows = Uniform(1, 5);
      const bool with_bias = trial % 3 != 0, with_residual = trial % 5 != 0;
      const bool centered = trial % 4 < 2;
      const Weights weights(hidden, random_);
      const NormShape shape{.element = element,
                            .hidden = hidden,
                            .weight = weights.weight.data(),
                            .bias = with_bias ? weights.bias.data() : nullptr,
                            .epsilon = 1e-5f,
                            .centered = centered};
      ElementArray x = ElementArray::Random(element, rows * hidden, 3, random_);
      const ElementArray residual = ElementArray::Random(element, rows * hidden, 1, random_);
      const ElementArray before = x;
      kernel->run(shape, x.data(), with_residual ? residual.data() : nullptr, x.data(), rows);
      for (int64_t r = 0; r < rows; ++r) {
        const auto at = [&](int64_t e) {
          const int64_t i = r * hidden + e;
          return before[i] + (with_residual ? residual[i] : 0);
        };
        double mean = 0, variance = 0;
        for (int64_t e = 0; centered && e < hidden; ++e) {
          mean += at(e) / static_cast<double>(hidden);
        }
        for (int64_t e = 0; e < hidden; ++e) {
          variance += (at(e) - mean) * (at(e) - mean) / static_cast<double>(hidden);
        }
        for (int64_t e = 0; e < hidden; ++e) {
          const double unit = (at(e) - mean) / std::sqrt(variance + 1e-5);
          const double expected = unit * weights.weight[e] + (with_bias ? weights.bias[e] : 0);
          ASSERT_NEAR(x[r * hidden + e], expected, 2e-5 + std::abs(expected) * Rounding(element))
              << kernel->backend << " element " << e << " of " << hidden;
        }
      }
    }
  }
}

TEST_F(NormKernelTest, ARowOfEqualElementsBecomesTheBias) {
  for (const NormKernel* kernel : NormKernelsHere()) {
    const int64_t hidden = 37;
    const Weights weights(hidden, random_);
    const NormShape shape{.element = Element::kFloat32,
                          .hidden = hidden,
                          .weight = weights.weight.data(),
                          .bias = weights.bias.data(),
                          .epsilon = 1e-12f};
    const std::vector<float> x(hidden, 2);
    std::vector<float> y(hidden);
    kernel->run(shape, x.data(), nullptr, y.data(), 1);
    EXPECT_EQ(y, weights.bias) << kernel->backend;
  }
}

// Rotations and products against their definitions in double precision, by every kernel that this
// processor can run.

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
