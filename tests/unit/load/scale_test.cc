#include "client/load/output/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/load/output/chart.h"
#include "tests/support/seeded.h"

namespace castor::load {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

MATCHER(Close, "") { return std::abs(std::get<0>(arg) / std::get<1>(arg) - 1) < 1e-9; }

TEST(ScaleTest, MapsLinearlyAndByLogarithm) {
  const Scale linear = Scale::Linear(0, 10, 100, 200);
  EXPECT_DOUBLE_EQ(linear.At(5), 150);
  EXPECT_DOUBLE_EQ(linear.At(-1), 100);
  EXPECT_DOUBLE_EQ(linear.At(11), 200);
  const Scale log = Scale::Log(1, 1000, 300, 0);
  EXPECT_NEAR(log.At(10), 200, 1e-9);
  EXPECT_NEAR(log.At(0), 300, 1e-9);
}

TEST(ScaleTest, TicksAreRound) {
  EXPECT_THAT(Scale::Linear(0, 97, 0, 1).Ticks(5), ElementsAre(0, 20, 40, 60, 80));
  EXPECT_THAT(Scale::Log(1e3, 1e6, 0, 1).Ticks(4), Pointwise(Close(), {1e3, 1e4, 1e5, 1e6}));
  EXPECT_THAT(Scale::Log(2e6, 1e7, 0, 1).Ticks(6), Pointwise(Close(), {2e6, 5e6, 1e7}));
  EXPECT_THAT(Scale::Log(1, 1e8, 0, 1).Ticks(4), Pointwise(Close(), {1.0, 1e2, 1e4, 1e6, 1e8}));
  EXPECT_THAT(TimeTicks(60, 6), ElementsAre(0, 10, 20, 30, 40, 50, 60));
  EXPECT_THAT(TimeTicks(3600, 6), ElementsAre(0, 600, 1200, 1800, 2400, 3000, 3600));
}

TEST(ScaleTest, RoundsToOneTwoFive) {
  EXPECT_DOUBLE_EQ(RoundUp(1.01), 2);
  EXPECT_DOUBLE_EQ(RoundUp(2), 2);
  EXPECT_DOUBLE_EQ(RoundUp(5.1), 10);
  EXPECT_DOUBLE_EQ(RoundUp(0), 1);
  EXPECT_DOUBLE_EQ(RoundDown(1.99), 1);
  EXPECT_DOUBLE_EQ(RoundDown(4.9), 2);
  EXPECT_DOUBLE_EQ(RoundDown(1000), 1000);
}

TEST(ScaleTest, PositionsAreShort) {
  EXPECT_EQ(Position(12), "12");
  EXPECT_EQ(Position(12.06), "12.1");
  EXPECT_EQ(Position(-0.01), "0");
}

TEST(ScaleTest, SpreadKeepsLabelsApart) {
  EXPECT_THAT(Spread({50, 50, 10}, 13, 0, 100), ElementsAre(50, 63, 10));
  EXPECT_THAT(Spread({99, 98}, 13, 0, 100), ElementsAre(100, 87));
}

class RandomTicksTest : public Seeded, public ::testing::Test {};

TEST_F(RandomTicksTest, AreWithinTheScaleAndNotTooMany) {
  for (int round = 0; round < 1000; ++round) {
    const double low = std::pow(10, static_cast<double>(Uniform(-30, 60)) / 10);
    const double high = low * std::pow(10, static_cast<double>(Uniform(4, 80)) / 10);
    const int count = UpTo(10);
    for (const Scale& scale : {Scale::Log(low, high, 0, 1), Scale::Linear(low, high, 0, 1)}) {
      const std::vector<double> ticks = scale.Ticks(count);
      EXPECT_LE(ticks.size(), static_cast<size_t>(count) + 2) << low << " " << high;
      for (const double tick : ticks) {
        EXPECT_GE(tick, low * (1 - 1e-6));
        EXPECT_LE(tick, high * (1 + 1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace castor::load
