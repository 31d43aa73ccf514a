#include "client/load/workload/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "client/load/workload/portable_math.h"
#include "tests/unit/load/distributions.h"
#include "tests/unit/load/seeds.h"

namespace castor::load {
namespace {

// Distance in units in the last place of `b`.
double Ulps(double a, double b) {
  const double ulp =
      std::nextafter(std::abs(b), std::numeric_limits<double>::infinity()) - std::abs(b);
  return std::abs(a - b) / ulp;
}

TEST(PortableMath, IsTheLibrarys) {
  std::mt19937_64 random(FreshSeed());
  std::uniform_real_distribution<double> unit(0, 1), wide(-700, 700);
  for (int i = 0; i < 200'000; ++i) {
    const double u = unit(random), w = wide(random);
    ASSERT_LE(Ulps(Log(u), std::log(u)), 2) << u;
    ASSERT_LE(Ulps(Log(std::exp(w)), std::log(std::exp(w))), 2) << w;
    ASSERT_LE(Ulps(Exp(w), std::exp(w)), 2) << w;
    ASSERT_LE(Ulps(Exp(u), std::exp(u)), 2) << u;
    ASSERT_NEAR(CosOfTurns(w), std::cos(2 * std::numbers::pi * (w - std::floor(w))), 1e-15) << w;
  }
}

TEST(PortableMath, IsExactWhereItCanBe) {
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(2), std::log(2.0));
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-1000), 0);
  EXPECT_EQ(CosOfTurns(0), 1);
  EXPECT_EQ(CosOfTurns(-3.5), -1);
  EXPECT_EQ(CosOfTurns(0.25), -CosOfTurns(0.75 - 1));
  EXPECT_NEAR(CosOfTurns(0.25), 0, 1e-16);
}

TEST(Random, DrawsHaveTheirDistributions) {
  Random random(FreshSeed());
  constexpr int kCount = 100'000;
  std::vector<double> uniform, exponential, normal;
  for (int i = 0; i < kCount; ++i) {
    uniform.push_back(Uniform(random));
    exponential.push_back(Exponential(random));
    normal.push_back(Normal(random));
  }
  EXPECT_LT(KolmogorovSmirnov(uniform, [](double x) { return x; }), kKolmogorovSmirnovLimit);
  EXPECT_LT(KolmogorovSmirnov(exponential, ExponentialDistribution), kKolmogorovSmirnovLimit);
  EXPECT_LT(
      KolmogorovSmirnov(normal, [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }),
      kKolmogorovSmirnovLimit);
  for (const double shape : {0.01, 0.25, 1.0, 4.0, 100.0}) {
    std::vector<double> gamma;
    for (int i = 0; i < kCount; ++i) gamma.push_back(Gamma(shape, random) / shape);
    const auto distribution = [&](double x) { return GammaDistribution(shape, x); };
    EXPECT_LT(KolmogorovSmirnov(gamma, distribution), kKolmogorovSmirnovLimit) << shape;
  }
}

// The test above would see a distribution that is a little off.
TEST(Random, TheTestSeparatesNeighbours) {
  Random random(FreshSeed());
  std::vector<double> gamma;
  for (int i = 0; i < 100'000; ++i) gamma.push_back(Gamma(1.1, random) / 1.1);
  EXPECT_GT(KolmogorovSmirnov(gamma, ExponentialDistribution), kKolmogorovSmirnovLimit);
}

TEST(Random, BelowIsEven) {
  Random random(FreshSeed());
  constexpr int kCount = 70'000;
  std::vector<int> counts(7);
  for (int i = 0; i < kCount; ++i) ++counts[Below(7, random)];
  for (const int count : counts) EXPECT_NEAR(count, kCount / 7, 6 * std::sqrt(kCount / 7.0));
}

}  // namespace
}  // namespace castor::load
