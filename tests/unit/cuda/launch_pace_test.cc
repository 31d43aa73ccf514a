#include "engine/device/cuda/launch/launch_pace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/seeded.h"

namespace castor {
namespace {

class LaunchPaceTest : public testing::Test, protected Seeded {
 protected:
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
};

constexpr double kMs = 1000;

TEST_F(LaunchPaceTest, ComesToThePaceOfTheRuns) {
  for (const DType dtype : kFloatingDTypes) {
    LaunchPace pace(dtype);
    const double us_per_unit = std::exp(Between(std::log(1e-3), std::log(3)));
    for (int run = 0; run < 40; ++run) {
      const double us = Between(kMs, 50 * kMs);
      pace.Learn(us / us_per_unit, us);
    }
    EXPECT_NEAR(pace.WorkIn(2 * kMs) * us_per_unit, 2 * kMs, 1);
  }
}

TEST_F(LaunchPaceTest, OneRunMovesItByAFactorOfTwoAtMost) {
  LaunchPace pace(DType::kBFloat16);
  for (int round = 0; round < 100; ++round) {
    const double before = pace.WorkIn(kMs);
    const double us = Between(kMs, 1e6);
    pace.Learn(std::exp(Between(-20, 40)), us);
    EXPECT_LE(pace.WorkIn(kMs), 2.0001 * before);
    EXPECT_GE(pace.WorkIn(kMs), before / 2.0001);
  }
}

TEST_F(LaunchPaceTest, ShortRunsAndNonsenseTeachNothing) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  LaunchPace pace(DType::kFloat32);
  const double before = pace.WorkIn(kMs);
  pace.Learn(1, 10);
  pace.Learn(0, kMs);
  pace.Learn(-1, kMs);
  pace.Learn(kNan, kMs);
  pace.Learn(1, kNan);
  EXPECT_EQ(pace.WorkIn(kMs), before);
}

TEST_F(LaunchPaceTest, StaysWithinBoundsWhateverItIsTold) {
  const double guess = LaunchPace(DType::kFloat16).WorkIn(kMs);
  LaunchPace slow(DType::kFloat16);
  LaunchPace fast(DType::kFloat16);
  for (int run = 0; run < 1000; ++run) {
    slow.Learn(std::numeric_limits<double>::min(), std::numeric_limits<double>::infinity());
    fast.Learn(std::numeric_limits<double>::infinity(), kMs);
  }
  EXPECT_GE(slow.WorkIn(kMs), guess / 1025);
  EXPECT_LE(fast.WorkIn(kMs), guess * 1025);
}

TEST_F(LaunchPaceTest, ADayOfOddRunsIsForgottenInTheNextFew) {
  LaunchPace pace(DType::kBFloat16);
  const double us_per_unit = 0.01;
  const auto run = [&](double slower) { pace.Learn(kMs / us_per_unit, kMs * slower); };
  for (int i = 0; i < 1000; ++i) run(100);
  for (int i = 0; i < 20; ++i) run(1);
  EXPECT_NEAR(pace.WorkIn(kMs) * us_per_unit, kMs, 1);
}

}  // namespace
}  // namespace castor
