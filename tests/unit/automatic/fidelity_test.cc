// The parts of the fidelity probe: the choice of rows, and the error over them.
#include "engine/automatic/fidelity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "engine/kernels/philox.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/vanilla.h"

namespace castor::attention {
namespace {

TEST(DrawFidelityRowsTest, AreThoseOfTheDefinition) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const uint64_t request_seed = random();
  const std::vector<int32_t> offsets = {0, 1, 8, 1008, 1024};
  for (const int32_t rows : {1, 3, 16, 1024}) {
    const FidelityRows drawn = DrawFidelityRows(request_seed, rows, offsets);
    ASSERT_EQ(drawn.cu_seqlens.size(), offsets.size());
    size_t at = 0;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      const int64_t n = offsets[b + 1] - offsets[b];
      const int64_t strata = std::min<int64_t>(rows, n);
      ASSERT_EQ(drawn.cu_seqlens[b + 1] - drawn.cu_seqlens[b], strata);
      for (int64_t r = 0; r < strata; ++r, ++at) {
        const int64_t lo = r * n / strata;
        const int64_t hi = (r + 1) * n / strata;
        const uint64_t x0 = kernels::Philox(
            {static_cast<uint32_t>(r), static_cast<uint32_t>(b), 0, 4}, request_seed)[0];
        EXPECT_EQ(
            drawn.tokens[at],
            offsets[b] + lo + static_cast<int64_t>((x0 * static_cast<uint64_t>(hi - lo)) >> 32));
      }
    }
    EXPECT_EQ(at, drawn.tokens.size());
    EXPECT_EQ(std::set<int32_t>(drawn.tokens.begin(), drawn.tokens.end()).size(), at) << "distinct";
  }
}

class RelativeErrorTest : public testing::TestWithParam<DType> {};

// The engine's probe, on a result with a known perturbation, against double precision over the same
// rows.
TEST_P(RelativeErrorTest, AgreesWithDoublePrecision) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Spec spec = MakeSpec(GetParam(), Vanilla{}, 3, 20, 12);
  spec.softmax_scale = 0.25;
  OwnedProblem problem(spec, {70, 9}, {40, 33}, {.query = 4, .output = 5});
  problem.Randomize(random);
  const std::vector<double> exact = VanillaReference(spec, problem.view);
  std::normal_distribution<double> normal;
  const int64_t row = spec.heads * spec.value_dim;
  for (int64_t token = 0; token < problem.view.query_tokens(); ++token) {
    for (int64_t e = 0; e < row; ++e) {
      problem.output.Set(token * problem.view.output_stride + e,
                         exact[token * row + e] + 0.05 * normal(random));
    }
  }

  const FidelityRows drawn = DrawFidelityRows(seed, 16, problem.cu_seqlens_q);
  // The gathered queries with all keys form a problem of their own.
  OwnedProblem rows(spec, {16, 9}, {40, 33});
  GatherRows(spec.dtype, problem.query.data(), problem.view.query_stride,
             spec.heads * spec.head_dim, drawn.tokens, rows.query.data());
  rows.view.key = problem.view.key;
  rows.view.value = problem.view.value;
  const std::vector<double> exact_rows = VanillaReference(spec, rows.view);
  Elements stored(spec.dtype, static_cast<int64_t>(exact_rows.size()));
  double error = 0;
  double norm = 0;
  for (size_t r = 0; r < drawn.tokens.size(); ++r) {
    for (int64_t e = 0; e < row; ++e) {
      const double expected = exact_rows[r * row + e];
      EXPECT_DOUBLE_EQ(expected, exact[drawn.tokens[r] * row + e]) << "the right query";
      stored.Set(r * row + e, expected);
      const double rounded = stored.Get(r * row + e);
      const double given = problem.output.Get(drawn.tokens[r] * problem.view.output_stride + e);
      error += (given - rounded) * (given - rounded);
      norm += rounded * rounded;
    }
  }
  const double measured =
      RelativeError(spec.dtype, problem.output.data(), problem.view.output_stride, row,
                    drawn.tokens, stored.data());
  EXPECT_NEAR(measured, std::sqrt(error / norm), 1e-12);
  EXPECT_GT(measured, 0.01);
}

TEST_P(RelativeErrorTest, IsZeroForEqualRowsAndInfiniteWhereNothingCanBeSaid) {
  const DType dtype = GetParam();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  Elements exact(dtype, 4);
  Elements given(dtype, 8);  // two tokens of stride 4, of which 2 elements count
  const std::vector<int32_t> rows = {0, 1};
  const auto measured = [&] {
    return RelativeError(dtype, given.data(), 4, 2, rows, exact.data());
  };
  EXPECT_EQ(measured(), 0) << "all zero";
  given.Set(3, 7);
  EXPECT_EQ(measured(), 0) << "gaps between tokens do not count";
  given.Set(1, 0.5);
  EXPECT_EQ(measured(), kInfinite) << "the exact rows are zero";
  exact.Set(1, 0.25);
  exact.Set(3, -0.0625);
  given.Set(5, -0.0625);
  EXPECT_DOUBLE_EQ(measured(), 0.25 / std::hypot(0.25, 0.0625));
  for (const double bad : {kInfinite, -kInfinite, std::nan("")}) {
    given.Set(4, bad);
    EXPECT_EQ(measured(), kInfinite) << bad;
    given.Set(4, 0);
    exact.Set(2, bad);
    EXPECT_EQ(measured(), kInfinite) << bad;
    exact.Set(2, 0);
  }
}

// Every float16, including the denormals.
TEST(RelativeErrorHalfTest, ReadsEveryHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Elements half(DType::kFloat16, 1);
    std::memcpy(half.data(), &bits, 2);
    const double value = half.Get(0);
    if (!std::isfinite(value) || value == 0) continue;
    Elements zero(DType::kFloat16, 1);
    const std::vector<int32_t> row = {0};
    // The error is 0 against itself and |value - 1| against 1; the error of zero is 1.
    EXPECT_EQ(RelativeError(DType::kFloat16, half.data(), 1, 1, row, half.data()), 0);
    EXPECT_EQ(RelativeError(DType::kFloat16, zero.data(), 1, 1, row, half.data()), 1);
    Elements unit(DType::kFloat16, 1);
    unit.Set(0, 1);
    ASSERT_DOUBLE_EQ(RelativeError(DType::kFloat16, half.data(), 1, 1, row, unit.data()),
                     std::abs(value - 1))
        << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RelativeErrorTest, testing::ValuesIn(kFloatTypes));

}  // namespace
}  // namespace castor::attention
