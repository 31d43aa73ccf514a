// Weights in 8 bits: near the floats that they stand for, and never too great for a kernel's sums.

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/encoder/layers/linear.h"
#include "engine/encoder/network/int8_fidelity.h"
#include "engine/kernels/cpu/linear/linear.h"
#include "tests/support/seeded.h"

namespace castor::encoder {
namespace {

using kernels::LinearKernel;

class QuantizeTest : public ::testing::Test, public Seeded {
 protected:
  static std::vector<const LinearKernel*> Kernels() {
    std::vector<const LinearKernel*> here;
    for (const LinearKernel* kernel : kernels::kLinearKernels) {
      if (kernel->type == kernels::LinearType::kInt8 && kernel->runs_here()) here.push_back(kernel);
    }
    return here;
  }

  // Quantizes, expects what holds for any weights, and returns the greatest growth of a scale
  // beyond what takes the greatest weight to 127.
  static double Quantize(const LinearKernel& kernel, const at::Tensor& weight) {
    const int64_t out = weight.size(0), in = weight.size(1);
    const float* const from = weight.const_data_ptr<float>();
    const Weights8 weights = QuantizeWeights(weight, kernel);
    double growth = 0;
    for (int64_t o = 0; o < out; ++o) {
      const int8_t* const values = weights.values.get() + o * in;
      const double excess = kernel.excess == nullptr ? 0 : kernel.excess(values, in);
      EXPECT_LE(excess, 1) << kernel.backend;
      float greatest = 0;
      int32_t sum = 0;
      for (int64_t i = 0; i < in; ++i) {
        const float scale = weights.scales[o];
        EXPECT_NEAR(static_cast<float>(values[i]) * scale, from[o * in + i], 0.5001F * scale);
        EXPECT_GE(values[i], -127);
        greatest = std::max(greatest, std::abs(from[o * in + i]));
        sum += values[i];
      }
      EXPECT_EQ(weights.sums[o], sum);
      if (greatest > 0) growth = std::max(growth, weights.scales[o] * 127.0 / greatest);
    }
    for (int64_t o = out; o < kernel.panels(out) * kernel.panel_width; ++o) {
      EXPECT_EQ(weights.scales[o], 1);
      EXPECT_EQ(weights.sums[o], 0);
    }
    return growth;
  }
};

// Weights as trained models have them lose a fraction of a bit, and few of them.
TEST_F(QuantizeTest, NormalWeights) {
  for (const LinearKernel* kernel : Kernels()) {
    for (int trial = 0; trial < 20; ++trial) {
      const double growth = Quantize(*kernel, at::randn({UpTo(40), UpTo(500)}));
      EXPECT_LT(growth, kernel->excess == nullptr ? 1.0001 : 1.9);
    }
  }
}

// Where all weights are as great as the greatest, half of their range is what the sums hold.
TEST_F(QuantizeTest, EqualWeights) {
  for (const LinearKernel* kernel : Kernels()) {
    for (const double value : {1.0, -1e30, 1e-30}) {
      const double growth = Quantize(*kernel, at::full({3, 64}, value));
      EXPECT_LT(growth, kernel->excess == nullptr ? 1.0001 : 2.02);
    }
  }
}

TEST_F(QuantizeTest, ZerosAndWhatAScaleCannotHold) {
  for (const LinearKernel* kernel : Kernels()) {
    for (const double value : {0.0, 1e-42}) {
      const at::Tensor weight = at::full({3, 10}, value);
      const Weights8 weights = QuantizeWeights(weight, *kernel);
      for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(weights.values[i], 0);
      for (int64_t o = 0; o < 3; ++o) EXPECT_EQ(weights.scales[o], 1);
    }
  }
}

// The fidelity that a model in 8 bits reports.

TEST(Int8FidelityTest, IsTheMeanAndTheLeastOfTheCosines) {
  const Int8Fidelity fidelity = CompareVectors({1, 0, 1, 0}, {2, 0, 3, 4}, 2);
  EXPECT_DOUBLE_EQ(fidelity.mean_cosine, 0.8);
  EXPECT_DOUBLE_EQ(fidelity.least_cosine, 0.6);
}

// Wherever the vector is among the others.
TEST(Int8FidelityTest, IsNoNumberWhereAVectorIsNotFinite) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (int bad = 0; bad < 3; ++bad) {
    std::vector<float> int8 = {2, 0, 3, 4, 1, 1};
    int8[static_cast<size_t>(2 * bad)] = kNaN;
    const Int8Fidelity fidelity = CompareVectors({1, 0, 1, 0, 1, 1}, int8, 2);
    EXPECT_TRUE(std::isnan(fidelity.mean_cosine)) << bad;
    EXPECT_TRUE(std::isnan(fidelity.least_cosine)) << bad;
  }
}

}  // namespace
}  // namespace castor::encoder
