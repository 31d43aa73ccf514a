// The learned factors: they follow what is measured, slowly, each size for itself.
#include "engine/jobs/time_corrections.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace castor {
namespace {

// Runs that take `truth` times what the base says, `runs` times.
void Repeat(double base_us, double truth, int runs, TimeCorrections* corrections) {
  for (int i = 0; i < runs; ++i) {
    corrections->Learn(base_us, truth / corrections->Factor(base_us), 1);
  }
}

TEST(TimeCorrectionsTest, ConvergeToWhatIsMeasured) {
  TimeCorrections corrections(4);
  EXPECT_EQ(corrections.Factor(1000), 1);
  Repeat(1000, 2, 100, &corrections);
  EXPECT_NEAR(corrections.Factor(1000), 2, 0.05);
  // A single slow run hardly matters.
  corrections.Learn(1000, 3, 1);
  EXPECT_LT(corrections.Factor(1000), 2.2);
  // The machine has become faster.
  Repeat(1000, 0.5, 200, &corrections);
  EXPECT_NEAR(corrections.Factor(1000), 0.5, 0.02);
}

TEST(TimeCorrectionsTest, AreClamped) {
  TimeCorrections corrections(4);
  Repeat(1000, 1e6, 500, &corrections);
  EXPECT_NEAR(corrections.Factor(1000), 4, 1e-9);
  Repeat(1000, 1e-6, 500, &corrections);
  EXPECT_NEAR(corrections.Factor(1000), 0.25, 1e-9);
  TimeCorrections wide(1000);
  Repeat(1000, 300, 500, &wide);
  EXPECT_NEAR(wide.Factor(1000), 300, 10);
}

TEST(TimeCorrectionsTest, SizesAreIndependentAndTheUnseenBorrowFromTheNearest) {
  TimeCorrections corrections(4);
  Repeat(100, 0.5, 100, &corrections);
  EXPECT_NEAR(corrections.Factor(1e6), 0.5, 0.05) << "the only size that was seen";
  Repeat(100'000, 3, 100, &corrections);
  EXPECT_NEAR(corrections.Factor(100), 0.5, 0.05);
  EXPECT_NEAR(corrections.Factor(100'000), 3, 0.1);
  EXPECT_NEAR(corrections.Factor(300), 0.5, 0.05);
  EXPECT_NEAR(corrections.Factor(50'000), 3, 0.1);
  // What a size learns first starts from what it borrowed.
  corrections.Learn(50'000, 1, 1);
  EXPECT_NEAR(corrections.Factor(50'000), 3, 0.1);
}

TEST(TimeCorrectionsTest, SurviveNonsense) {
  TimeCorrections corrections(4);
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double base : {0.0, -1.0, 1e-9, 1e300, kInfinity, kNaN}) {
    for (const double error : {0.0, -1.0, kInfinity, kNaN}) corrections.Learn(base, error, 1);
    corrections.Learn(base, 1, kNaN);
    EXPECT_EQ(corrections.Factor(base), 1);
  }
}

}  // namespace
}  // namespace castor
