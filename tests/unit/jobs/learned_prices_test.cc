// Prices that follow the times of runs.
#include "engine/jobs/learned_prices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/seeded.h"

namespace castor {
namespace {

using attention::CostTerms;
using attention::kCostTerms;

double Sum(const CostTerms& us) {
  double sum = 0;
  for (const double cost : us) sum += cost;
  return sum;
}

class LearnedPricesTest : public testing::Test, protected Seeded {
 protected:
  // Costs of a run: some terms, of very different sizes.
  CostTerms RandomCosts() {
    std::uniform_real_distribution<double> log(0, 6);
    CostTerms us{};
    us[0] = 10;
    for (size_t t = 1; t < kCostTerms; t += 3) us[t] = std::exp(log(random_));
    return us;
  }
};

TEST_F(LearnedPricesTest, SayNothingAtFirst) {
  const CostTerms us = RandomCosts();
  EXPECT_EQ(LearnedPrices().Corrected(us), us);
}

// The true prices are up to half as much again, each by itself, and runs are noisy.
TEST_F(LearnedPricesTest, TellTermsApart) {
  std::uniform_real_distribution<double> factor(0.7, 1.5);
  std::normal_distribution<double> noise(0, 0.1);
  CostTerms truth;
  for (double& of : truth) of = factor(random_);
  const auto time = [&](const CostTerms& us) {
    double sum = 0;
    for (size_t t = 0; t < kCostTerms; ++t) sum += us[t] * truth[t];
    return sum;
  };
  LearnedPrices learned;
  for (int i = 0; i < 500; ++i) {
    const CostTerms us = RandomCosts();
    learned.Learn(us, time(us) * std::exp(noise(random_)));
  }
  double before = 0;
  double after = 0;
  for (int i = 0; i < 500; ++i) {
    const CostTerms us = RandomCosts();
    before += std::abs(std::log(Sum(us) / time(us)));
    after += std::abs(std::log(Sum(learned.Corrected(us)) / time(us)));
  }
  EXPECT_LT(after / 500, 0.1);
  EXPECT_LT(after, before + 500 * 0.01);
}

TEST_F(LearnedPricesTest, ASlowRunHardlyMatters) {
  LearnedPrices learned;
  for (int i = 0; i < 50; ++i) {
    const CostTerms us = RandomCosts();
    learned.Learn(us, Sum(us));
  }
  learned.Learn(RandomCosts(), 1e9);
  for (int i = 0; i < 20; ++i) {
    const CostTerms us = RandomCosts();
    EXPECT_NEAR(Sum(learned.Corrected(us)) / Sum(us), 1, 0.25);
  }
}

// For some twenty runs another process has the machine.
TEST_F(LearnedPricesTest, RunsThatAreSlowTogetherHardlyMatter) {
  LearnedPrices learned;
  const auto learn = [&](int runs, double pace) {
    for (int i = 0; i < runs; ++i) {
      const CostTerms us = RandomCosts();
      learned.Learn(us, pace * Sum(us));
    }
  };
  const auto error = [&] {
    double sum = 0;
    for (int i = 0; i < 100; ++i) {
      const CostTerms us = RandomCosts();
      sum += std::abs(std::log(Sum(learned.Corrected(us)) / Sum(us)));
    }
    return sum / 100;
  };
  learn(100, 1);
  learn(20, 1.5);
  EXPECT_LT(error(), std::log(1.5) / 2);
  learn(40, 1);
  EXPECT_LT(error(), 0.07);  // one seed of 300 is above 0.05
}

TEST_F(LearnedPricesTest, FollowTheMachineWithinBounds) {
  LearnedPrices learned;
  for (const double speed : {1.0, 2.0, 0.5, 1.0}) {
    for (int i = 0; i < 400; ++i) {
      const CostTerms us = RandomCosts();
      learned.Learn(us, speed * Sum(us));
    }
    const CostTerms us = RandomCosts();
    EXPECT_NEAR(Sum(learned.Corrected(us)) / Sum(us), speed, 0.15 * speed);
  }
  for (const double speed : {1e6, 1e-6}) {
    for (int i = 0; i < 2000; ++i) {
      const CostTerms us = RandomCosts();
      learned.Learn(us, speed * Sum(us));
    }
    const CostTerms us = RandomCosts();
    EXPECT_LE(Sum(learned.Corrected(us)) / Sum(us), LearnedPrices::kMost * 1.001);
    EXPECT_GE(Sum(learned.Corrected(us)) / Sum(us), 0.999 / LearnedPrices::kMost);
  }
}

TEST_F(LearnedPricesTest, NonsenseTeachesNothing) {
  LearnedPrices learned;
  const CostTerms us = RandomCosts();
  for (const double time : {0.0, -1.0, std::nan(""), HUGE_VAL}) learned.Learn(us, time);
  learned.Learn(CostTerms{}, 5);
  EXPECT_EQ(learned.Corrected(us), us);
}

}  // namespace
}  // namespace castor
