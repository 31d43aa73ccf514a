// What the automatic kernel chooses from, and what is worth trying.
#include "engine/attention/rungs.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "engine/attention/parameters.h"
#include "engine/attention/problem.h"
#include "engine/jobs/batch_key.h"

namespace castor::attention {
namespace {

std::vector<double> Chosen(const std::vector<double>& costs) {
  std::vector<Candidate> candidates;
  for (const double cost : costs) candidates.push_back({{Vanilla{}, cost}, cost});
  std::vector<double> chosen;
  for (const Rung& rung : RungsThatPay(candidates)) chosen.push_back(rung.predicted_us);
  return chosen;
}

using Costs = std::vector<double>;

TEST(RungsTest, EachCostsAtMostHalfOfTheNext) {
  EXPECT_EQ(Chosen({100}), Costs{100});
  EXPECT_EQ(Chosen({100, 51}), Costs{100});
  EXPECT_EQ(Chosen({100, 50}), (Costs{50, 100}));
  // The most exact one that pays stands in the list, not the cheapest.
  EXPECT_EQ(Chosen({100, 60, 40, 30, 20, 15, 9}), (Costs{9, 20, 40, 100}));
}

TEST(RungsTest, WhatItsTimeIsNobodyKnowsIsNotTried) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Chosen({100, kUnknown, 10}), (Costs{10, 100}));
  EXPECT_EQ(Chosen({kUnknown, kUnknown}), Costs{kUnknown});
}

TEST(RungsTest, KernelsAreListedOnceFromTheMostExactOn) {
  const std::vector<Kernel> kernels = KernelsToChooseFrom({});
  EXPECT_EQ(NameOf(kernels.front()), KernelName::kVanilla);
  std::set<std::string> keys;
  double loss = 0;
  for (const Kernel& kernel : kernels) {
    EXPECT_TRUE(CheckParameters(kernel).ok());
    EXPECT_GE(LossOf(kernel), loss);
    loss = LossOf(kernel);
    EXPECT_EQ(loss > 0, IsApproximate(NameOf(kernel)));
    keys.insert(BatchKey(1, kernel));
  }
  EXPECT_EQ(keys.size(), kernels.size());
  EXPECT_TRUE(keys.contains(BatchKey(1, Clustered{}))) << "the defaults are among them";
  EXPECT_TRUE(keys.contains(BatchKey(1, ImprovedClustered{})));
}

TEST(RungsTest, OnlyWhatIsAllowedIsListed) {
  const std::vector<KernelName> one = {KernelName::kClustered};
  for (const Kernel& kernel : KernelsToChooseFrom(one)) {
    EXPECT_EQ(NameOf(kernel), KernelName::kClustered);
  }
  const std::vector<KernelName> none = {KernelName::kCast};
  EXPECT_TRUE(KernelsToChooseFrom(none).empty());
}

TEST(RungsTest, MoreClustersAndMoreKeysLoseLess) {
  ImprovedClustered improved;
  const double loss = LossOf(improved);
  EXPECT_LT(loss, LossOf(Clustered{}));
  improved.clusters *= 2;
  EXPECT_LT(LossOf(improved), loss);
  improved.clusters /= 2;
  improved.topk *= 2;
  EXPECT_LT(LossOf(improved), loss);
}

TEST(RungsTest, OptionsBeyondThePaperLoseLess) {
  int with_options = 0, papers = 0;
  for (const Kernel& kernel : KernelsToChooseFrom({})) {
    const auto* improved = std::get_if<ImprovedClustered>(&kernel);
    if (improved == nullptr) continue;
    ++(OptionBeyondThePaper(kernel).empty() ? papers : with_options);
    ImprovedClustered paper;
    paper.clusters = improved->clusters;
    paper.topk = improved->topk;
    EXPECT_EQ(LossOf(kernel) < LossOf(paper), !OptionBeyondThePaper(kernel).empty());
  }
  EXPECT_EQ(with_options, papers);
}

}  // namespace
}  // namespace castor::attention
