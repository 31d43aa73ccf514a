// Products of 8 bits: exact sums, whatever the instruction set, and inputs within half a step.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/kernels/cpu/linear/linear.h"
#include "tests/support/seeded.h"

namespace castor::kernels {
namespace {

std::vector<const LinearKernel*> Int8KernelsHere() {
  std::vector<const LinearKernel*> here;
  for (const LinearKernel* kernel : kLinearKernels) {
    if (kernel->type == LinearType::kInt8 && kernel->runs_here()) here.push_back(kernel);
  }
  return here;
}

// Makes the weights of an output [in] as small as the kernel's sums ask for.
void Shrink(const LinearKernel& kernel, int8_t* weights, int64_t in) {
  if (kernel.excess == nullptr) return;
  const double excess = kernel.excess(weights, in);
  if (excess <= 1) return;
  for (int64_t i = 0; i < in; ++i) weights[i] = static_cast<int8_t>(weights[i] / excess);
}

class LinearInt8Test : public ::testing::Test, public Seeded {
 protected:
  // Rows by weights, all random, by `kernel`, and by definition in double precision.
  void ExpectProduct(const LinearKernel& kernel, int64_t rows, int64_t in, int64_t out,
                     bool extremes) {
    const int64_t stride = kernel.prepared_elements(in);
    std::vector<uint8_t> x(rows * stride);
    const int32_t most = kernel.most_input;
    for (uint8_t& value : x) value = static_cast<uint8_t>(extremes ? most : Uniform(0, most));
    std::vector<int8_t> weights(out * in);
    for (int8_t& value : weights) value = static_cast<int8_t>(extremes ? -127 : Uniform(-127, 127));
    std::vector<RowScale> x_scales(rows);
    for (RowScale& row : x_scales) {
      row = {.scale = static_cast<float>(Uniform(1, 100)) / 1000,
             .zero = static_cast<int32_t>(Uniform(0, most))};
    }
    for (int64_t o = 0; o < out; ++o) Shrink(kernel, &weights[o * in], in);
    const int64_t padded = kernel.panels(out) * kernel.panel_width;
    std::vector<float> scales(padded, 1), bias(out);
    std::vector<int32_t> sums(padded);
    for (int64_t o = 0; o < out; ++o) {
      scales[o] = static_cast<float>(Uniform(1, 100)) / 1000;
      bias[o] = static_cast<float>(Uniform(-100, 100));
      for (int64_t i = 0; i < in; ++i) sums[o] += weights[o * in + i];
    }
    auto panels = AllocateAligned<uint32_t>(kernel.packed_words(in, out));
    kernel.pack(weights.data(), in, out, panels.get());
    std::vector<float> y(rows * out);
    kernel.run({.in = in,
                .out = out,
                .panels = panels.get(),
                .bias = bias.data(),
                .scales = scales.data(),
                .sums = sums.data()},
               {.x = x.data(),
                .x_stride = stride,
                .x_scales = x_scales.data(),
                .y = y.data(),
                .y_stride = out},
               Activation::kNone, 0, rows, 0, kernel.panels(out));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        int64_t sum = 0;
        for (int64_t i = 0; i < in; ++i) {
          sum += (x[r * stride + i] - x_scales[r].zero) * weights[o * in + i];
        }
        const double product = double{x_scales[r].scale} * scales[o] * static_cast<double>(sum);
        ASSERT_NEAR(y[r * out + o], product + bias[o],
                    0x1p-21 * (std::abs(product) + std::abs(bias[o])))
            << kernel.backend << " row " << r << " output " << o << " of " << out << ", " << in
            << " inputs";
      }
    }
  }
};

TEST_F(LinearInt8Test, IsTheProductByItsDefinition) {
  for (const LinearKernel* kernel : Int8KernelsHere()) {
    for (int trial = 0; trial < 40; ++trial) {
      ExpectProduct(*kernel, UpTo(40), UpTo(300), UpTo(120), /*extremes=*/false);
    }
  }
}

// Products do not saturate, and the longest sum that a kernel takes does not overflow.
TEST_F(LinearInt8Test, TheGreatestSumsAreExact) {
  for (const LinearKernel* kernel : Int8KernelsHere()) {
    int64_t in = 1;
    while (kernel->packs(in + 1)) ++in;
    EXPECT_GT(in, 60'000);
    ExpectProduct(*kernel, 2, in, 3, /*extremes=*/true);
    EXPECT_FALSE(kernel->packs(in + 1));
  }
}

// The greatest weights that a kernel takes, wherever they lie among its words, by the greatest
// inputs; and it takes none greater.
TEST_F(LinearInt8Test, SumsAreExactUpToTheGreatestWeights) {
  for (const LinearKernel* kernel : Int8KernelsHere()) {
    if (kernel->excess == nullptr) continue;
    constexpr int64_t kIn = 24;
    const int64_t stride = kernel->prepared_elements(kIn);
    const std::vector<uint8_t> x(stride, static_cast<uint8_t>(kernel->most_input));
    const RowScale unscaled = {.scale = 1, .zero = 0};
    int within = 0, beyond = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<int8_t> weights(kIn);
      const int sign = trial % 2 == 0 ? 1 : -1;
      for (int8_t& value : weights) value = static_cast<int8_t>(sign * Uniform(0, 127));
      const double excess = kernel->excess(weights.data(), kIn);
      (excess <= 1 ? within : beyond) += 1;
      Shrink(*kernel, weights.data(), kIn);
      EXPECT_LE(kernel->excess(weights.data(), kIn), 1);
      auto panels = AllocateAligned<uint32_t>(kernel->packed_words(kIn, 1));
      kernel->pack(weights.data(), kIn, 1, panels.get());
      int32_t sum = 0;
      for (const int8_t value : weights) sum += value;
      const std::vector<float> scales(kernel->panel_width, 1);
      const std::vector<int32_t> sums(kernel->panel_width, sum);
      float y = 0;
      kernel->run(
          {.in = kIn,
           .out = 1,
           .panels = panels.get(),
           .bias = nullptr,
           .scales = scales.data(),
           .sums = sums.data()},
          {.x = x.data(), .x_stride = stride, .x_scales = &unscaled, .y = &y, .y_stride = 1},
          Activation::kNone, 0, 1, 0, 1);
      EXPECT_EQ(y, static_cast<float>(kernel->most_input * sum)) << kernel->backend;
    }
    EXPECT_GT(within, 0);
    EXPECT_GT(beyond, 0);
  }
}

TEST_F(LinearInt8Test, AnInputIsWithinHalfAStep) {
  for (const LinearKernel* kernel : Int8KernelsHere()) {
    for (int trial = 0; trial < 200; ++trial) {
      const int64_t in = UpTo(100);
      std::vector<float> x(in);
      const double offset = static_cast<double>(Uniform(-20, 20));
      std::normal_distribution<float> normal(static_cast<float>(offset), 5);
      for (float& value : x) value = trial % 4 == 0 ? 0 : normal(random_);
      std::vector<uint8_t> quantized(kernel->prepared_elements(in), 77);
      const RowScale row = kernel->prepare(x.data(), in, quantized.data());
      EXPECT_GE(row.zero, 0);
      EXPECT_LE(row.zero, kernel->most_input);
      for (int64_t i = 0; i < in; ++i) {
        EXPECT_NEAR(row.scale * static_cast<float>(quantized[i] - row.zero), x[i],
                    0.501 * row.scale)
            << kernel->backend;
        EXPECT_LE(quantized[i], kernel->most_input) << kernel->backend;
      }
      for (size_t i = in; i < quantized.size(); ++i) EXPECT_EQ(quantized[i], 0);
    }
  }
}

TEST_F(LinearInt8Test, ZerosStayZeros) {
  for (const LinearKernel* kernel : Int8KernelsHere()) {
    const std::vector<float> x = {0, 3.7F, 0, -1.3F, 0};
    std::vector<uint8_t> quantized(8);
    const RowScale row = kernel->prepare(x.data(), 5, quantized.data());
    for (const int i : {0, 2, 4}) EXPECT_EQ(quantized[i], row.zero);
  }
}

}  // namespace
}  // namespace castor::kernels
