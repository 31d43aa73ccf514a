// A request's plan after each step, without an engine or a device.
#include "engine/automatic/plan.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace castor {
namespace {

const Kernel kImproved = ImprovedClustered{};

StepOutcome Ran(double compute_us = 100) { return {.compute_us = compute_us}; }

StepOutcome Probed(double relative_error) {
  Fidelity estimate;
  estimate.rows = 32;
  estimate.relative_error = relative_error;
  return {.estimate = estimate};
}

StepOutcome Failed() { return {.status = MakeError(Reason::kInternal, "a fault")}; }

// Clustered, improved clustered, vanilla; each predicted to take ten times as long as the one
// before.
Plan AutomaticPlan(double max_relative_error, size_t kernels = 3) {
  std::vector<attention::Candidate> candidates = {
      {Clustered{}, 1}, {kImproved, 10}, {Vanilla{}, 100}};
  candidates.resize(kernels);
  return {std::move(candidates), max_relative_error, 32};
}

ExecutionReport ReportOf(const Plan& plan) {
  ExecutionReport report;
  plan.Describe(&report);
  return report;
}

TEST(PlanTest, RunsOnceAndAnswers) {
  Plan plan;
  EXPECT_EQ(plan.Next(Ran()), Step::kAnswer);
  EXPECT_FALSE(plan.automatic());
  EXPECT_TRUE(plan.candidates().empty());
  EXPECT_FALSE(ReportOf(plan).fidelity.has_value());
}

TEST(PlanTest, BeginsAgainAfterARunThatFailed) {
  Plan plan;
  EXPECT_EQ(plan.Next(Failed()), Step::kFail);
  EXPECT_EQ(plan.Next(Failed()), Step::kFail);
  EXPECT_EQ(plan.Next(Ran()), Step::kAnswer);
}

TEST(PlanTest, MeasuresAndStatesTheErrorForWhoAsked) {
  Plan plan(9, true);
  EXPECT_EQ(plan.Next(Ran()), Step::kProbe);
  EXPECT_EQ(plan.Next(Probed(0.3)), Step::kAnswer) << "whatever the error is";
  ASSERT_TRUE(ReportOf(plan).fidelity.has_value());
  EXPECT_EQ(ReportOf(plan).fidelity->relative_error, 0.3);
}

TEST(PlanTest, AFailedProbeFailsWhoAskedForItAndTheRunIsMadeAgain) {
  Plan plan(9, true);
  EXPECT_EQ(plan.Next(Ran()), Step::kProbe);
  EXPECT_EQ(plan.Next(Failed()), Step::kFail);
  EXPECT_EQ(plan.Next(Ran()), Step::kProbe);
  EXPECT_EQ(plan.Next(Probed(0.1)), Step::kAnswer);
}

TEST(PlanTest, AProbeForTheStatisticsChangesNoAnswer) {
  Plan measured(16, false);
  EXPECT_EQ(measured.Next(Ran()), Step::kProbe);
  EXPECT_EQ(measured.Next(Probed(0.3)), Step::kAnswer);
  EXPECT_FALSE(ReportOf(measured).fidelity.has_value());

  Plan failed(16, false);
  EXPECT_EQ(failed.Next(Ran()), Step::kProbe);
  EXPECT_EQ(failed.Next(Failed()), Step::kAnswer) << "the run's result stands";
  EXPECT_EQ(failed.Next(Failed()), Step::kFail) << "of a run";
}

TEST(PlanTest, GoesOnToTheNextKernelWhileTheErrorIsTooLarge) {
  Plan plan = AutomaticPlan(0.1);
  EXPECT_TRUE(plan.automatic());
  EXPECT_EQ(plan.candidates().size(), 3u);
  EXPECT_EQ(plan.Next(Ran(200)), Step::kProbe);
  EXPECT_EQ(plan.Next(Probed(0.3)), Step::kRun);
  EXPECT_EQ(NameOf(plan.kernel()), KernelName::kImprovedClustered);
  EXPECT_EQ(plan.Next(Failed()), Step::kFail);
  EXPECT_EQ(NameOf(plan.kernel()), KernelName::kImprovedClustered) << "a failure rejects nothing";
  EXPECT_EQ(plan.Next(Ran(300)), Step::kProbe);
  EXPECT_EQ(plan.Next(Probed(0.05)), Step::kAnswer);

  const ExecutionReport report = ReportOf(plan);
  EXPECT_EQ(report.kernel.predicted_us, 10);
  EXPECT_EQ(report.fidelity->relative_error, 0.05);
  ASSERT_EQ(report.kernel.rejected.size(), 1u);
  EXPECT_EQ(NameOf(report.kernel.rejected[0].kernel), KernelName::kClustered);
  EXPECT_EQ(report.kernel.rejected[0].measured_us, 200);
  EXPECT_EQ(report.kernel.rejected[0].relative_error, 0.3);
}

TEST(PlanTest, ExactAttentionEndsItWithoutAProbe) {
  Plan plan = AutomaticPlan(0.1);
  EXPECT_EQ(plan.Next(Ran()), Step::kProbe);
  EXPECT_EQ(plan.Next(Probed(0.2)), Step::kRun);
  EXPECT_EQ(plan.Next(Ran()), Step::kProbe);
  EXPECT_EQ(plan.Next(Probed(std::numeric_limits<double>::quiet_NaN())), Step::kRun);
  EXPECT_EQ(NameOf(plan.kernel()), KernelName::kVanilla);
  EXPECT_EQ(plan.Next(Ran()), Step::kAnswer);
  EXPECT_FALSE(ReportOf(plan).fidelity.has_value());
  EXPECT_EQ(ReportOf(plan).kernel.rejected.size(), 2u);
}

TEST(PlanTest, WithoutExactAttentionReturnsToTheLeastError) {
  Plan plan = AutomaticPlan(0.01, 2);
  EXPECT_EQ(plan.Next(Ran()), Step::kProbe);
  EXPECT_EQ(plan.Next(Probed(0.1)), Step::kRun);
  EXPECT_EQ(plan.Next(Ran()), Step::kProbe);
  EXPECT_EQ(plan.Next(Probed(0.2)), Step::kRun);
  EXPECT_EQ(NameOf(plan.kernel()), KernelName::kClustered);
  EXPECT_EQ(plan.Next(Ran()), Step::kAnswer) << "its error is known";
  EXPECT_EQ(ReportOf(plan).fidelity->relative_error, 0.1);
}

}  // namespace
}  // namespace castor
