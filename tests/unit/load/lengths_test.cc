#include "client/load/workload/lengths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/unit/load/seeds.h"

namespace castor::load {
namespace {

LengthMixture Mix(std::vector<std::pair<double, Length>> parts) {
  LengthMixture mixture;
  for (auto& [weight, length] : parts) mixture.parts.push_back({weight, {length}});
  return mixture;
}

const std::vector<Length>& Kinds() {
  static const std::vector<Length> kinds = {
      FixedLength{77},
      UniformLength{1, 512},
      UniformLength{9, 9},
      LognormalLength{128, 1, 1, 4096},
      LognormalLength{100, 0, 1, 100},
      LognormalLength{2.2, 0.7, 1, 9},  // rounding and cutting weigh most
      EmpiricalLength{{3, 3, 90}},
      Mix({{9, FixedLength{64}}, {1, UniformLength{512, 4096}}}),
      Mix({{1, Mix({{1, FixedLength{1}}, {3, FixedLength{2}}})}, {2, EmpiricalLength{{5, 7}}}})};
  return kinds;
}

// Mean() against draws, within 6 standard errors of what was drawn.
TEST(Lengths, MeanIsThatOfDraws) {
  Random random(FreshSeed());
  constexpr int kCount = 100'000;
  for (const Length& length : Kinds()) {
    double sum = 0, squares = 0;
    int64_t greatest = 0;
    for (int i = 0; i < kCount; ++i) {
      const int64_t drawn = Draw(length, random);
      ASSERT_GE(drawn, 1);
      ASSERT_LE(drawn, Greatest(length));
      greatest = std::max(greatest, drawn);
      sum += static_cast<double>(drawn);
      squares += static_cast<double>(drawn) * static_cast<double>(drawn);
    }
    const double mean = sum / kCount;
    const double error = std::sqrt(std::max(0.0, squares / kCount - mean * mean) / kCount);
    EXPECT_NEAR(mean, Mean(length), 6 * error + 1e-9) << "kind " << length.index();
    // The very greatest of thousands may never be drawn; one of the last hundredth is.
    EXPECT_GE(greatest * 100, Greatest(length) * 99) << "kind " << length.index();
  }
}

TEST(Lengths, LognormalHasItsMedianAndSpread) {
  Random random(FreshSeed());
  constexpr int kCount = 100'000;
  int below = 0, within = 0;  // the median; one sigma around it
  for (int i = 0; i < kCount; ++i) {
    const auto drawn = static_cast<double>(Draw(LognormalLength{1e5, 0.5, 1, 1 << 20}, random));
    below += drawn < 1e5;
    within += std::abs(std::log(drawn / 1e5)) < 0.5;
  }
  EXPECT_NEAR(below, 0.5 * kCount, 6 * std::sqrt(0.25 * kCount));
  EXPECT_NEAR(within, 0.6827 * kCount, 6 * std::sqrt(0.22 * kCount));
}

TEST(Lengths, PartsComeByWeight) {
  Random random(FreshSeed());
  constexpr int kCount = 100'000;
  std::map<int64_t, int> counts;
  for (int i = 0; i < kCount; ++i) {
    ++counts[Draw(Mix({{9, FixedLength{64}}, {1, FixedLength{512}}}), random)];
  }
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts[512], 0.1 * kCount, 6 * std::sqrt(0.09 * kCount));
}

TEST(Lengths, EqualSeedsGiveEqualLengths) {
  const uint64_t seed = FreshSeed();
  for (const Length& length : Kinds()) {
    Random one(seed), other(seed);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(Draw(length, one), Draw(length, other));
  }
}

// On every machine the same.
TEST(Lengths, AreKnown) {
  Random random(1);
  std::vector<int64_t> drawn;
  for (int i = 0; i < 4; ++i) drawn.push_back(Draw(LognormalLength{}, random));
  for (int i = 0; i < 4; ++i) drawn.push_back(Draw(UniformLength{}, random));
  EXPECT_EQ(drawn, (std::vector<int64_t>{123, 100, 121, 348, 46, 285, 405, 114}));
}

}  // namespace
}  // namespace castor::load
