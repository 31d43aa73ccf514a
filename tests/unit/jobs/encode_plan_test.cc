// Which kernels an encoder's automatic request may run, by prices alone.
#include "engine/jobs/encode_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "engine/attention/cost/rungs.h"
#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "engine/jobs/cosine_gains.h"
#include "tests/unit/scheduling/fake_model.h"

namespace castor {
namespace {

// One layer of 4 heads of 32.
class OneLayer : public FakeModel {
 public:
  OneLayer() : FakeModel("one") {}
  std::vector<encoder::AttentionLayers> attention(const Kernel& kernel) const override {
    return {{encoder::SelfAttentionSpec(DType::kFloat32, 128, 4, kernel), 1}};
  }
};

class EncodePlannerTest : public testing::Test {
 protected:
  EncodePlannerTest() {
    for (const KernelName name :
         {KernelName::kVanilla, KernelName::kClustered, KernelName::kImprovedClustered}) {
      attention::CostTerms prices{};
      prices[static_cast<size_t>(attention::CostTerm::kScores)] = 1;
      costs_.Set(name, DType::kFloat32, prices);
    }
    model_.info.kernels = SoftmaxKernels();
    model_.encoder = std::make_shared<OneLayer>();
    model_.costs.measured = true;
    set(encoder::CostTerm::kTokens, 1);
    // What the same pairs cost in attention's terms: 4 heads of 2 * 32.
    set(encoder::CostTerm::kPairs, 4 * 64 * 1e3 * 1e-6);
  }

  void set(encoder::CostTerm term, double us) {
    model_.costs.prices[static_cast<size_t>(term)] = us;
  }

  Plan PlanOf(int32_t tokens, double min_cosine = 0.9, std::vector<KernelName> allowed = {}) {
    const Predictor predictor(costs_, 1);
    EncodePlanner planner(predictor, variants_, share_);
    EncodeRequest request;
    request.kernel = Automatic{.allowed = std::move(allowed), .min_cosine = min_cosine};
    kernel_ = Vanilla{};
    const std::vector<int32_t> offsets = {0, tokens};
    return planner.PlanFor(request, model_, offsets, /*final=*/true, &kernel_);
  }

  attention::CostModel costs_;
  LoadedModel model_;
  std::span<const attention::Variant> variants_ = attention::CpuVariants();
  double share_ = 0;
  Kernel kernel_;
};

TEST_F(EncodePlannerTest, OnlyWhoStatesACosineHasAChoice) {
  EXPECT_FALSE(PlanOf(100'000, 0).automatic());
  EXPECT_EQ(NameOf(kernel_), KernelName::kVanilla);
  EXPECT_EQ(PlanOf(100'000, 1).rungs().size(), 1u) << "a cosine of 1 is exact";
  EXPECT_GT(PlanOf(100'000).rungs().size(), 1u);
  EXPECT_NE(NameOf(kernel_), KernelName::kVanilla);
}

TEST_F(EncodePlannerTest, ShortTextsAreExactWithoutAProbe) {
  for (const int32_t tokens : {1, 12, 512, 3000}) {
    const Plan plan = PlanOf(tokens);
    EXPECT_EQ(plan.rungs().size(), 1u) << tokens;
    EXPECT_EQ(plan.probe_rows(), 0);
    EXPECT_EQ(NameOf(kernel_), KernelName::kVanilla);
  }
}

// Rows take a microsecond each, pairs a quarter of a nanosecond: half of the time is attention's at
// about 4,000 tokens.
TEST_F(EncodePlannerTest, AnApproximationPaysWhereAttentionIsMostOfTheTime) {
  EXPECT_EQ(PlanOf(3'800).rungs().size(), 1u);
  const Plan plan = PlanOf(8'000);
  ASSERT_EQ(plan.rungs().size(), 2u) << "the rest of the layers leaves no room for more";
  EXPECT_EQ(plan.probe_rows(), kEncodeProbeRows);
  EXPECT_LE(plan.rungs()[0].predicted_us, plan.rungs()[1].predicted_us / 2);
  EXPECT_EQ(NameOf(plan.rungs()[1].kernel), KernelName::kVanilla);
  set(encoder::CostTerm::kTokens, 0.01);
  EXPECT_GT(PlanOf(8'000).rungs().size(), 2u);
}

TEST_F(EncodePlannerTest, LocalLayersMakeItPayLater) {
  class OneOfFour : public FakeModel {
   public:
    OneOfFour() : FakeModel("local") {}
    std::vector<encoder::AttentionLayers> attention(const Kernel& kernel) const override {
      std::vector<encoder::AttentionLayers> layers = {
          {encoder::SelfAttentionSpec(DType::kFloat32, 128, 4, kernel), 1},
          {encoder::SelfAttentionSpec(DType::kFloat32, 128, 4, Vanilla{}), 3}};
      layers[1].spec.window = 64;
      return layers;
    }
  };
  ASSERT_GT(PlanOf(8'000).rungs().size(), 1u);
  model_.encoder = std::make_shared<OneOfFour>();
  EXPECT_EQ(PlanOf(8'000).rungs().size(), 1u);
  EXPECT_GT(PlanOf(64'000).rungs().size(), 1u);
}

TEST_F(EncodePlannerTest, OnlyKernelsThatTheModelRunsAndTheCallerAllows) {
  const Plan plan = PlanOf(100'000, 0.9, {KernelName::kVanilla, KernelName::kClustered});
  for (const attention::Rung& rung : plan.rungs()) {
    EXPECT_NE(NameOf(rung.kernel), KernelName::kImprovedClustered);
  }
  model_.info.kernels = {KernelName::kVanilla};
  EXPECT_EQ(PlanOf(100'000).rungs().size(), 1u);
}

// A GPU's kernels are those of the paper alone.
TEST_F(EncodePlannerTest, OptionsBeyondThePaperOnlyWhereTheDeviceHasThem) {
  set(encoder::CostTerm::kTokens, 0.001);
  const auto with_options = [](const Plan& plan) {
    return std::count_if(plan.rungs().begin(), plan.rungs().end(), [](const auto& rung) {
      return !attention::OptionBeyondThePaper(rung.kernel).empty();
    });
  };
  EXPECT_GT(with_options(PlanOf(100'000)), 0);
  std::vector<attention::Variant> papers(variants_.begin(), variants_.end());
  for (attention::Variant& row : papers) {
    row.supports = [](const attention::Spec& spec) {
      return attention::OptionBeyondThePaper(spec.kernel).empty();
    };
  }
  variants_ = papers;
  const Plan plan = PlanOf(100'000);
  EXPECT_GT(plan.rungs().size(), 1u);
  EXPECT_EQ(with_options(plan), 0);
}

TEST_F(EncodePlannerTest, WhatWasNotMeasuredIsNotTried) {
  costs_ = attention::CostModel();
  EXPECT_EQ(PlanOf(100'000).rungs().size(), 1u);
  EXPECT_GT(PlanOf(100'000).rungs()[0].predicted_us, 0);
  model_.costs.measured = false;
  EXPECT_EQ(PlanOf(100'000).rungs().size(), 1u);
  EXPECT_EQ(PlanOf(100'000).rungs()[0].predicted_us, 0);
}

TEST_F(EncodePlannerTest, AShareIsComparedByCounting) {
  const Predictor predictor(costs_, 1);
  EncodePlanner planner(predictor, variants_, 0.25);
  EncodeRequest request;
  request.kernel = Automatic{.min_cosine = 0.9};
  const std::vector<int32_t> offsets = {0, 100'000};
  int compared = 0;
  for (int i = 0; i < 40; ++i) {
    Kernel kernel;
    planner.PlanFor(request, model_, offsets, /*final=*/false, &kernel);  // before it is tokenized
    Plan plan = planner.PlanFor(request, model_, offsets, /*final=*/true, &kernel);
    const StepOutcome exact = {.estimate = Fidelity{.rows = 1, .relative_error = 0}};
    compared += plan.Next(exact) == Step::kRun;
  }
  EXPECT_EQ(compared, 10);
}

}  // namespace
}  // namespace castor
