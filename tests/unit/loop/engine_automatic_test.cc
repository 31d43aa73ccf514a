// The fidelity probe through the engine.
#include <gtest/gtest.h>

#include "tests/unit/loop/engine_automatic_fixture.h"

namespace castor {
namespace {

TEST_F(EngineAutomaticTest, WithoutAnAllowanceRunsVanillaAlone) {
  Start();
  const AttentionResult& result = Run(Request({200}, Automatic{}));
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kVanilla);
  EXPECT_EQ(result.report.kernel.predicted_us, 100);
  EXPECT_EQ(result.report.kernel.measured_us, 100);
  EXPECT_FALSE(result.report.fidelity.has_value());
  EXPECT_EQ(Launched(), Kernels{kVanilla});
  EXPECT_EQ(StatsOf(kVanilla).automatic_requests, 1u);
}

TEST_F(EngineAutomaticTest, MeasuresTheErrorOnRequest) {
  Start();
  Clustered kernel;
  kernel.seed = random_();
  AttentionRequest request = Request({50, 3}, kernel);
  request.fidelity_rows = 9;
  const AttentionResult& result = Run(std::move(request));
  ASSERT_TRUE(result.report.fidelity.has_value());
  EXPECT_EQ(result.report.fidelity->rows, 9);
  EXPECT_NEAR(result.report.fidelity->relative_error, 0.3, 1e-6);
  EXPECT_EQ(script_->launches().back(), (ApproximateLaunch{kVanilla, {9 + 3}}));

  AttentionRequest exact = Request({50}, Vanilla{});
  exact.fidelity_rows = 9;
  EXPECT_FALSE(Run(std::move(exact)).report.fidelity.has_value());
  EXPECT_EQ(script_->launches().back(), (ApproximateLaunch{kVanilla, {50}})) << "no probe";
}

TEST_F(EngineAutomaticTest, MeasuresTheConfiguredShareOfTrafficUnasked) {
  options_.fidelity_share = 0.3;
  Start();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Run(Request({10}, Clustered{})).report.fidelity.has_value());
    Run(Request({10}, Vanilla{}));
  }
  EXPECT_EQ(StatsOf(kClustered).relative_error.count(), 6u);
  EXPECT_NEAR(StatsOf(kClustered).relative_error.sum, 6 * 0.3, 1e-5);
  EXPECT_EQ(StatsOf(kImproved).relative_error.count(), 0u);
  EXPECT_EQ(StatsOf(kClustered).answered(), 20u);
  EXPECT_EQ(StatsOf(kClustered).automatic_requests, 0u);
}

}  // namespace
}  // namespace castor
