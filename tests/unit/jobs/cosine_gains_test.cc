// Estimates of cosines from what layers lose, and how they are learned.
#include "engine/jobs/cosine_gains.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/seeded.h"

namespace castor {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
const std::string kTenant = "a";
const CosineGains::Kind kKind = {.generation = 1, .kernel = KernelName::kClustered};
const std::vector<int32_t> kOne = {0, 1000};

double CosineOfPair(std::vector<float> a, std::vector<float> b) { return CosineOf(a, b); }

TEST(CosineTest, OfVectors) {
  EXPECT_DOUBLE_EQ(CosineOfPair({3, 4}, {6, 8}), 1);
  EXPECT_DOUBLE_EQ(CosineOfPair({1, 0}, {0, 2}), 0);
  EXPECT_DOUBLE_EQ(CosineOfPair({1, 1}, {-1, -1}), -1);
  EXPECT_DOUBLE_EQ(CosineOfPair({1e30f, 0}, {1e30f, 0}), 1) << "squares do not overflow";
  EXPECT_EQ(CosineOfPair({0, 0}, {0, 0}), 1);
  EXPECT_EQ(CosineOfPair({0, 0}, {1, 0}), 0);
  EXPECT_TRUE(std::isnan(CosineOfPair({NAN, 0}, {1, 0})));
  EXPECT_TRUE(std::isnan(CosineOfPair({1, 0}, {INFINITY, 0})));
}

TEST(CosineTest, DistancesAndBack) {
  EXPECT_DOUBLE_EQ(DistanceOf(1), 0);
  EXPECT_DOUBLE_EQ(DistanceOf(-1), 2);
  for (const double cosine : {-0.5, 0.0, 0.9, 0.9999}) {
    EXPECT_NEAR(CosineAt(DistanceOf(cosine)), cosine, 1e-12);
  }
  EXPECT_TRUE(std::isnan(DistanceOf(kNotANumber)));
}

// Compares `times` sequences of `tokens` tokens whose vectors turn by `gain` times their loss.
void Teach(CosineGains& gains, double gain, int times, int32_t tokens = 1000,
           const CosineGains::Kind& kind = kKind, const std::string& tenant = kTenant,
           float loss = 0.01f) {
  for (int i = 0; i < times; ++i) {
    const std::vector<float> losses = {loss};
    const std::vector<double> cosines = {1 - gain * losses[0]};
    gains.Learn(tenant, kind, std::vector<int32_t>{0, tokens}, losses, cosines);
  }
}

double Estimate(const CosineGains& gains, float loss, int32_t tokens = 1000,
                const CosineGains::Kind& kind = kKind, const std::string& tenant = kTenant) {
  return gains.LeastCosine(tenant, kind, std::vector<int32_t>{0, tokens}, std::vector<float>{loss})
      .cosine;
}

TEST(CosineGainsTest, NothingIsKnownBeforeAFewComparisons) {
  CosineGains gains;
  Teach(gains, 0.5, CosineGains::kFewest - 1);
  EXPECT_TRUE(std::isnan(Estimate(gains, 0.01f)));
  Teach(gains, 0.5, 1);
  EXPECT_LT(Estimate(gains, 0.01f), 1 - 0.5 * 0.01) << "the gain may be larger next time";
  EXPECT_GT(Estimate(gains, 0.01f), 1 - 0.5 * 0.04);
  Teach(gains, 0.5, 200);
  EXPECT_LT(Estimate(gains, 0.01f), 1 - 0.5 * 0.01);
  EXPECT_GT(Estimate(gains, 0.01f), 1 - 0.5 * 0.015) << "by now it is known well";
}

TEST(CosineGainsTest, WhoLosesNothingNeedsNoComparisons) {
  const CosineGains gains;
  EXPECT_EQ(Estimate(gains, 0), 1);
  EXPECT_EQ(gains.LeastCosine(kTenant, kKind, kOne, std::vector<float>{0}).comparisons, 0);
}

TEST(CosineGainsTest, LossesThatAreNoNumbersAreNoEstimate) {
  CosineGains gains;
  Teach(gains, 0.5, 10);
  for (const float bad : {NAN, INFINITY}) EXPECT_TRUE(std::isnan(Estimate(gains, bad))) << bad;
  // Nor do they teach.
  for (const float bad : {NAN, INFINITY}) {
    gains.Learn(kTenant, kKind, kOne, std::vector<float>{bad}, std::vector<double>{0.5});
  }
  gains.Learn(kTenant, kKind, kOne, std::vector<float>{0.01f}, std::vector<double>{kNotANumber});
  EXPECT_EQ(gains.LeastCosine(kTenant, kKind, kOne, std::vector<float>{0.01f}).comparisons, 10);
}

TEST(CosineGainsTest, WhatIsNotAlikeIsLearnedApart) {
  CosineGains gains;
  Teach(gains, 0.5, 10);
  EXPECT_FALSE(std::isnan(Estimate(gains, 0.01f, 600)));
  EXPECT_TRUE(std::isnan(Estimate(gains, 0.01f, 2000)));
  for (const CosineGains::Kind& other :
       {CosineGains::Kind{.generation = 2, .kernel = KernelName::kClustered},
        CosineGains::Kind{.generation = 1, .kernel = KernelName::kImprovedClustered},
        CosineGains::Kind{.generation = 1, .dimensions = 8, .kernel = KernelName::kClustered},
        CosineGains::Kind{
            .generation = 1, .pooling = Pooling::kCls, .kernel = KernelName::kClustered},
        CosineGains::Kind{.generation = 1, .kernel = KernelName::kClustered, .embeddings = true}}) {
    EXPECT_TRUE(std::isnan(Estimate(gains, 0.01f, 1000, other)));
  }
  EXPECT_TRUE(std::isnan(Estimate(gains, 0.1f)));
  EXPECT_TRUE(std::isnan(Estimate(gains, 0.001f)));
  EXPECT_TRUE(std::isnan(Estimate(gains, 0.01f, 1000, kKind, "b")));
  const double before = Estimate(gains, 0.01f);
  Teach(gains, 1e-6, 100, 1000, kKind, "b");
  EXPECT_EQ(Estimate(gains, 0.01f), before) << "whatever others teach";
}

TEST(CosineGainsTest, TheWorstSequenceCounts) {
  CosineGains gains;
  for (const float loss : {0.001f, 0.01f, 1e6f}) {
    Teach(gains, 0.5, 50, 1000, kKind, kTenant, loss);
  }
  const std::vector<int32_t> two = {0, 1000, 2000};
  const auto least = [&](float a, float b) {
    return gains.LeastCosine(kTenant, kKind, two, std::vector<float>{a, b}).cosine;
  };
  EXPECT_EQ(least(0.01f, 0.001f), least(0.001f, 0.01f));
  EXPECT_LT(least(0.001f, 0.01f), Estimate(gains, 0.01f)) << "either may be unlucky";
  EXPECT_GE(least(1e6f, 0), -1);
}

// Whatever the gains' spread is, the estimate is too high about as seldom as it says: for requests
// of one sequence and of many.
TEST(CosineGainsTest, IsSeldomTooHigh) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> loss(1e-4, 0.02);
  for (const double spread : {0.1, 0.4, 1.0}) {
    for (const size_t sequences : {1, 50}) {
      CosineGains gains;
      std::vector<int32_t> offsets = {0};
      for (size_t s = 0; s < sequences; ++s) offsets.push_back(offsets.back() + 900);
      int too_high = 0;
      int estimates = 0;
      for (int request = 0; request < 2000; ++request) {
        std::vector<float> losses;
        std::vector<double> cosines;
        double least = 1;
        for (size_t s = 0; s < sequences; ++s) {
          losses.push_back(static_cast<float>(loss(random)));
          cosines.push_back(1 - losses.back() * 0.3 * std::exp(spread * normal(random)));
          least = std::min(least, cosines.back());
        }
        const auto estimate = gains.LeastCosine(kTenant, kKind, offsets, losses);
        if (!std::isnan(estimate.cosine)) {
          ++estimates;
          too_high += estimate.cosine > least;
        }
        if (request < 100 || request % 32 == 0)
          gains.Learn(kTenant, kKind, offsets, losses, cosines);
      }
      EXPECT_GT(estimates, 1700) << "few lose as little as some";
      EXPECT_LT(too_high, 0.08 * estimates) << spread << " " << sequences;
    }
  }
}

TEST(CosineGainsTest, ForgetsOldModels) {
  CosineGains gains;
  for (uint64_t generation = 1; generation <= 3000; ++generation) {
    Teach(gains, 0.5, CosineGains::kFewest, 1000, {.generation = generation});
  }
  EXPECT_TRUE(std::isnan(Estimate(gains, 0.01f, 1000, {.generation = 1})));
  EXPECT_FALSE(std::isnan(Estimate(gains, 0.01f, 1000, {.generation = 3000})));
}

}  // namespace
}  // namespace castor
