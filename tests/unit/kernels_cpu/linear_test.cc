// Products with packed matrices against their definition in double precision, by every kernel that
// this processor can run.

#include "engine/kernels/cpu/linear/linear.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "engine/base/aligned.h"
#include "tests/support/seeded.h"
#include "tests/unit/kernels_cpu/elements.h"

namespace castor::kernels {
namespace {

constexpr Activation kAllActivations[] = {
    Activation::kNone, Activation::kGeluErf, Activation::kGeluTanh, Activation::kQuickGelu,
    Activation::kRelu, Activation::kSilu,    Activation::kTanh};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double ActivateExactly(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return x * Sigmoid(1.702 * x);
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSilu:
      return x * Sigmoid(x);
    case Activation::kTanh:
      return std::tanh(x);
  }
  return x;
}

std::vector<const LinearKernel*> LinearKernelsHere() {
  std::vector<const LinearKernel*> here;
  for (const LinearKernel* kernel : kLinearKernels) {
    if (kernel->type != LinearType::kInt8 && kernel->runs_here()) here.push_back(kernel);
  }
  return here;
}

Element ElementOf(const LinearKernel& kernel) {
  return kernel.type == LinearType::kBFloat16 ? Element::kBFloat16 : Element::kFloat32;
}

// A product with random values.
struct Product {
  const LinearKernel& kernel;
  const int64_t rows, in, out;
  ElementArray x, weights;
  std::vector<float> bias;
  AlignedArray<uint32_t> panels;

  Product(const LinearKernel& kernel, int64_t rows, int64_t in, int64_t out, std::mt19937& random)
      : kernel(kernel),
        rows(rows),
        in(in),
        out(out),
        x(ElementArray::Random(ElementOf(kernel), rows * in, 1, random)),
        weights(ElementArray::Random(ElementOf(kernel), out * in,
                                     2 / std::sqrt(static_cast<double>(in)), random)),
        panels(AllocateAligned<uint32_t>(kernel.packed_words(in, out))) {
    std::normal_distribution<float> normal;
    for (int64_t o = 0; o < out; ++o) bias.push_back(normal(random));
    kernel.pack(weights.data(), in, out, panels.get());
  }

  // Rows [row_begin, row_end) of the outputs in panels [panel_begin, panel_end), into `y`.
  void Run(Activation activation, bool with_bias, int64_t row_begin, int64_t row_end,
           int64_t panel_begin, int64_t panel_end, ElementArray& y) const {
    const PackedMatrix matrix{
        .in = in, .out = out, .panels = panels.get(), .bias = with_bias ? bias.data() : nullptr};
    LinearRows both{.x = x.data(), .x_stride = in, .y = y.data(), .y_stride = out};
    AlignedArray<char> prepared;
    if (kernel.prepare != nullptr) {
      both.x_stride = kernel.prepared_elements(in);
      const int64_t bytes = both.x_stride * kernel.prepared_size;
      prepared = AllocateAligned<char>(rows * bytes);
      for (int64_t r = 0; r < rows; ++r) {
        kernel.prepare(x.at(r * in), in, prepared.get() + r * bytes);
      }
      both.x = prepared.get();
    }
    kernel.run(matrix, both, activation, row_begin, row_end, panel_begin, panel_end);
  }

  ElementArray All(Activation activation, bool with_bias) const {
    ElementArray y(ElementOf(kernel), rows * out);
    Run(activation, with_bias, 0, rows, 0, kernel.panels(out), y);
    return y;
  }
};

class LinearKernelTest : public ::testing::Test, public Seeded {};

TEST_F(LinearKernelTest, IsTheProductByItsDefinition) {
  for (const LinearKernel* kernel : LinearKernelsHere()) {
    for (int trial = 0; trial < 40; ++trial) {
      const auto below = [&](int64_t most) { return Uniform(1, most); };
      const Product product(*kernel, below(40), 2 * below(150), below(120), random_);
      const Activation activation = kAllActivations[trial % std::size(kAllActivations)];
      const bool with_bias = trial % 3 != 0;
      const ElementArray y = product.All(activation, with_bias);
      for (int64_t r = 0; r < product.rows; ++r) {
        for (int64_t o = 0; o < product.out; ++o) {
          double sum = with_bias ? product.bias[o] : 0;
          double magnitude = std::abs(sum);
          for (int64_t i = 0; i < product.in; ++i) {
            const double term = product.x[r * product.in + i] * product.weights[o * product.in + i];
            sum += term;
            magnitude += std::abs(term);
          }
          const double expected = ActivateExactly(activation, sum);
          const double bound = magnitude * static_cast<double>(product.in) * 0x1p-24 +
                               1e-6 * (1 + std::abs(sum)) +
                               std::abs(expected) * Rounding(ElementOf(*kernel));
          ASSERT_NEAR(y[r * product.out + o], expected, bound)
              << kernel->backend << " activation " << static_cast<int>(activation) << " row " << r
              << " of " << product.rows << ", output " << o << " of " << product.out << ", "
              << product.in << " inputs";
        }
      }
    }
  }
}

TEST_F(LinearKernelTest, ARowDoesNotDependOnOthersNorOnHowTheWorkIsCut) {
  for (const LinearKernel* kernel : LinearKernelsHere()) {
    const Product product(*kernel, 29, 96, 3 * kernel->panel_width - 5, random_);
    const ElementArray whole = product.All(Activation::kGeluErf, true);
    ElementArray parts(ElementOf(*kernel), product.rows * product.out);
    for (int64_t row = 0; row < product.rows;) {
      const int64_t end = std::min<int64_t>(product.rows, row + Uniform(1, 5));
      for (int64_t panel = 0; panel < kernel->panels(product.out); ++panel) {
        product.Run(Activation::kGeluErf, true, row, end, panel, panel + 1, parts);
      }
      row = end;
    }
    EXPECT_EQ(whole, parts) << kernel->backend;
  }
}

TEST_F(LinearKernelTest, WritesItsRowsAndColumnsOnly) {
  for (const LinearKernel* kernel : LinearKernelsHere()) {
    const Product product(*kernel, 9, 32, 2 * kernel->panel_width + 3, random_);
    ElementArray y(ElementOf(*kernel), product.rows * product.out);
    for (int64_t i = 0; i < product.rows * product.out; ++i) y.Set(i, 1024);
    product.Run(Activation::kNone, true, 2, 7, 1, 2, y);
    for (int64_t r = 0; r < product.rows; ++r) {
      for (int64_t o = 0; o < product.out; ++o) {
        const bool inside = r >= 2 && r < 7 && o / kernel->panel_width == 1;
        EXPECT_EQ(y[r * product.out + o] != 1024, inside)
            << kernel->backend << " " << r << " " << o;
      }
    }
  }
}

// Outputs are rounded to nearest, ties to even.
TEST_F(LinearKernelTest, RoundsToBFloat16) {
  for (const LinearKernel* kernel : LinearKernelsHere()) {
    if (kernel->type != LinearType::kBFloat16) continue;
    constexpr int64_t kOut = 300;
    std::vector<float> bias;
    for (int64_t o = 0; o < kOut; ++o) {
      uint32_t bits = static_cast<uint32_t>(random_());
      if (o % 3 == 0) bits = (bits & 0xffff0000U) | 0x8000U;  // a tie
      if (o % 50 == 1) bits |= 0x7f800000U;                   // NaN
      if (o % 50 == 2) bits = 0x7f7fffffU;                    // rounds to Inf
      bias.push_back(std::bit_cast<float>(bits));
    }
    const ElementArray zeros(Element::kBFloat16, 2 * kOut);
    auto panels = AllocateAligned<uint32_t>(kernel->packed_words(2, kOut));
    kernel->pack(zeros.data(), 2, kOut, panels.get());
    std::vector<uint16_t> y(kOut);
    kernel->run({.in = 2, .out = kOut, .panels = panels.get(), .bias = bias.data()},
                {.x = zeros.data(), .x_stride = 2, .y = y.data(), .y_stride = kOut},
                Activation::kNone, 0, 1, 0, kernel->panels(kOut));
    for (int64_t o = 0; o < kOut; ++o) {
      const float rounded = std::bit_cast<float>(uint32_t{y[o]} << 16);
      if (std::isnan(bias[o])) {
        EXPECT_TRUE(std::isnan(rounded)) << kernel->backend;
        continue;
      }
      const auto bits = std::bit_cast<uint32_t>(bias[o] + 0.0f);
      const uint32_t up =
          (bits & 0xffffU) > 0x8000U || ((bits & 0xffffU) == 0x8000U && (bits & 0x10000U) != 0);
      EXPECT_EQ(std::bit_cast<uint32_t>(rounded), ((bits >> 16) + up) << 16) << kernel->backend;
    }
  }
}

// Far out, activations are lines, zeros or ones, and NaN stays.
TEST_F(LinearKernelTest, ActivationsHoldAtTheirEnds) {
  constexpr float kInputs[] = {-3e38f, -100.0f, -5.1f, -0.0f, 0.0f, 1e-30f, 5.1f, 100.0f, 3e38f};
  for (const LinearKernel* kernel : LinearKernelsHere()) {
    if (kernel->type != LinearType::kFloat32) continue;
    const float one = 1;
    auto panels = AllocateAligned<uint32_t>(kernel->packed_words(1, 1));
    kernel->pack(&one, 1, 1, panels.get());
    const PackedMatrix identity{.in = 1, .out = 1, .panels = panels.get(), .bias = nullptr};
    const auto apply = [&](Activation activation, float x) {
      float y = 0;
      kernel->run(identity, {.x = &x, .x_stride = 1, .y = &y, .y_stride = 1}, activation, 0, 1, 0,
                  1);
      return y;
    };
    for (const Activation activation : kAllActivations) {
      for (const float x : kInputs) {
        const double expected = ActivateExactly(activation, x);
        EXPECT_NEAR(apply(activation, x), expected, 2e-6 + 4e-7 * std::abs(expected))
            << kernel->backend << " " << static_cast<int>(activation) << " of " << x;
      }
      EXPECT_TRUE(std::isnan(apply(activation, std::nanf(""))))
          << kernel->backend << " " << static_cast<int>(activation);
    }
  }
}

}  // namespace
}  // namespace castor::kernels
