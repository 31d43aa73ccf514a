// The way from one kernel to the next, whatever the errors are.
#include "engine/attention/ladder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/seeded.h"

namespace castor::attention {
namespace {

Ladder ThreeRungs(double allowance) {
  return Ladder({{Clustered{}, 10}, {ImprovedClustered{}, 20}, {Vanilla{}, 90}}, allowance);
}

Fidelity Estimate(double error) { return {32, error, 5}; }

TEST(LadderTest, TakesTheFirstThatMeetsTheAllowance) {
  Ladder ladder = ThreeRungs(0.1);
  EXPECT_TRUE(ladder.needs_estimate());
  EXPECT_TRUE(ladder.Accept(Estimate(0.1), 11));
  EXPECT_EQ(NameOf(ladder.current().kernel), KernelName::kClustered);
  EXPECT_EQ(ladder.fidelity()->relative_error, 0.1);
  EXPECT_TRUE(ladder.rejected().empty());
}

TEST(LadderTest, ClimbsToVanillaWhichNeedsNoEstimate) {
  Ladder ladder = ThreeRungs(0.1);
  EXPECT_FALSE(ladder.Accept(Estimate(0.4), 11));
  EXPECT_EQ(NameOf(ladder.current().kernel), KernelName::kImprovedClustered)
      << "0.16 is to be expected";
  EXPECT_TRUE(ladder.needs_estimate());
  EXPECT_FALSE(ladder.Accept(Estimate(0.2), 21));
  EXPECT_EQ(NameOf(ladder.current().kernel), KernelName::kVanilla);
  EXPECT_FALSE(ladder.needs_estimate());
  EXPECT_FALSE(ladder.fidelity().has_value());
  EXPECT_EQ(ladder.current().predicted_us, 90);
  const auto rejected = ladder.rejected();
  ASSERT_EQ(rejected.size(), 2u);
  EXPECT_EQ(NameOf(rejected[0].kernel), KernelName::kClustered);
  EXPECT_EQ(rejected[0].measured_us, 11);
  EXPECT_EQ(rejected[0].relative_error, 0.4);
  EXPECT_EQ(NameOf(rejected[1].kernel), KernelName::kImprovedClustered);
  EXPECT_EQ(rejected[1].relative_error, 0.2);
}

TEST(LadderTest, WithoutVanillaTheLeastEstimateIsTheAnswer) {
  const std::vector<Rung> rungs = {{Clustered{}, 10}, {ImprovedClustered{}, 20}};
  Ladder last(rungs, 0.01);
  EXPECT_FALSE(last.Accept(Estimate(0.4), 11));
  EXPECT_TRUE(last.Accept(Estimate(0.2), 21));
  EXPECT_EQ(NameOf(last.current().kernel), KernelName::kImprovedClustered);
  EXPECT_EQ(last.fidelity()->relative_error, 0.2);

  Ladder first(rungs, 0.01);
  EXPECT_FALSE(first.Accept(Estimate(0.2), 11));
  EXPECT_FALSE(first.Accept(Estimate(0.4), 21)) << "clustered must run again";
  EXPECT_EQ(NameOf(first.current().kernel), KernelName::kClustered);
  EXPECT_FALSE(first.needs_estimate()) << "its error is known";
  EXPECT_EQ(first.fidelity()->relative_error, 0.2);
  ASSERT_EQ(first.rejected().size(), 1u);
  EXPECT_EQ(NameOf(first.rejected()[0].kernel), KernelName::kImprovedClustered);
}

TEST(LadderTest, AnEstimateThatIsNoNumberIsTooLarge) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Ladder ladder = ThreeRungs(1);
    EXPECT_FALSE(ladder.Accept(Estimate(bad), 11)) << bad;
    EXPECT_EQ(NameOf(ladder.current().kernel), KernelName::kVanilla);
  }
}

TEST(LadderTest, SkipsWhatTheErrorJustSeenLeavesNoHopeFor) {
  const auto clustered = [](int32_t clusters) { return Clustered{.clusters = clusters}; };
  const auto after = [&](double error) {
    Ladder ladder({{clustered(25), 1}, {clustered(100), 2}, {clustered(400), 4}, {Vanilla{}, 8}},
                  0.1);
    EXPECT_FALSE(ladder.Accept(Estimate(error), 1));
    return ladder.current().predicted_us;
  };
  // Four times the clusters halve the error, and twice the allowance is worth a try.
  EXPECT_EQ(after(0.15), 2);
  EXPECT_EQ(after(0.39), 2);
  EXPECT_EQ(after(0.41), 4);
  EXPECT_EQ(after(0.79), 4);
  EXPECT_EQ(after(0.81), 8);
}

TEST(LadderTest, TheLastRungIsTriedWhateverTheErrorIs) {
  Ladder ladder({{Clustered{}, 10}, {ImprovedClustered{}, 20}}, 1e-9);
  EXPECT_FALSE(ladder.Accept(Estimate(1), 11));
  EXPECT_EQ(NameOf(ladder.current().kernel), KernelName::kImprovedClustered);
}

TEST(LadderTest, RejectedKernelsKeepTheirParameters) {
  ImprovedClustered first;
  first.clusters = 25;
  first.topk = 64;
  Ladder ladder({{first, 10}, {ImprovedClustered{}, 20}, {Vanilla{}, 90}}, 0.1);
  EXPECT_FALSE(ladder.Accept(Estimate(0.11), 11));
  const auto rejected = ladder.rejected();
  ASSERT_EQ(rejected.size(), 1u);
  const auto& kernel = std::get<ImprovedClustered>(rejected[0].kernel);
  EXPECT_EQ(kernel.clusters, 25);
  EXPECT_EQ(kernel.topk, 64);
}

// Whatever the errors are, the ladder ends, and where it was made of rungs that pay, all that ran
// was predicted to take at most twice as long as the last rung.
TEST(LadderTest, EndsWithinTwiceTheTimeOfItsLastRung) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Candidate> candidates;
    for (const Kernel& kernel : KernelsToChooseFrom({})) {
      const double us = std::exp(8 * unit(random));
      candidates.push_back({{kernel, us}, us});
    }
    const std::vector<Rung> rungs = RungsThatPay(candidates);
    Ladder ladder(rungs, 0.01);
    double spent = ladder.current().predicted_us;
    size_t runs = 1;
    while (ladder.needs_estimate()) {
      if (ladder.Accept(Estimate(unit(random) < 0.05 ? 0 : unit(random)), 1)) break;
      spent += ladder.current().predicted_us;
      ASSERT_LE(++runs, rungs.size());
    }
    EXPECT_LE(spent, 2 * rungs.back().predicted_us);
  }
}

}  // namespace
}  // namespace castor::attention
