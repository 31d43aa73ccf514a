// The fidelity probe through the engine.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "engine/automatic/candidates.h"
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

// How the automatic kernel moves from one approximation to the next, for a single request.

TEST_F(EngineFallbackTest, KeepsAnApproximationWithinTheAllowance) {
  Start();
  const AttentionResult& result = Run(Request({300, 10}, Automatic{{}, 0.5}));
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kClustered);
  EXPECT_EQ(result.report.kernel.backend, "rough");
  EXPECT_EQ(result.report.kernel.predicted_us, 1);
  EXPECT_EQ(result.report.kernel.measured_us, 200);
  EXPECT_EQ(result.report.timing.compute_us, 200);
  EXPECT_TRUE(result.report.kernel.rejected.empty());
  ASSERT_TRUE(result.report.fidelity.has_value());
  EXPECT_EQ(result.report.fidelity->rows, attention::kAutomaticFidelityRows);
  EXPECT_NEAR(result.report.fidelity->relative_error, 0.2, 1e-6);
  EXPECT_GT(result.report.fidelity->probe_us, 0);
  // The run, and the probe of 32 rows of the first sequence and all 10 of the second.
  EXPECT_EQ(script_->launches(),
            (std::vector<ApproximateLaunch>{{kClustered, {310}}, {kVanilla, {32 + 10}}}));
}

TEST_F(EngineFallbackTest, RecomputesWithTheNextKernelWhenTheErrorIsTooLarge) {
  Start();
  AttentionRequest request = Request({300}, Automatic{{}, 0.1});
  const AttentionResult& result = Run(request);
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kImproved);
  EXPECT_EQ(result.report.kernel.backend, "better");
  // 2 heads of 50 centroids, in 64 lanes, by 300 keys in 4 + 4 dimensions.
  EXPECT_DOUBLE_EQ(result.report.kernel.predicted_us, 1.4 * 64 * 300);
  EXPECT_EQ(std::get<ImprovedClustered>(result.report.kernel.kernel).topk, 128);
  EXPECT_NEAR(result.report.fidelity->relative_error, 0.05, 1e-6);
  ASSERT_EQ(result.report.kernel.rejected.size(), 1u);
  EXPECT_EQ(std::get<Clustered>(result.report.kernel.rejected[0].kernel).clusters, 800);
  EXPECT_NEAR(result.report.kernel.rejected[0].relative_error, 0.2, 1e-6);
  EXPECT_EQ(result.report.kernel.rejected[0].measured_us, 200);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla, kImproved, kVanilla}));

  // The output is that of the accepted kernel.
  request.kernel = result.report.kernel.kernel;
  const AttentionResult& plain = Run(request);
  ASSERT_EQ(plain.output.data.size(), result.output.data.size());
  EXPECT_EQ(
      std::memcmp(plain.output.data.data(), result.output.data.data(), plain.output.data.size()),
      0);
}

// Neither an earlier kernel's nor the probe's. Its bytes count until the caller lets go of them.
TEST_F(EngineFallbackTest, TheLogSumExpIsThatOfTheAcceptedKernel) {
  Start();
  AttentionRequest request = Request({300}, Automatic{{}, 0.1});
  request.return_log_sum_exp = true;
  const AttentionResult& result = Run(request);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla, kImproved, kVanilla}));
  ASSERT_TRUE(result.log_sum_exp.has_value());
  EXPECT_EQ(result.log_sum_exp->dtype, DType::kFloat32);
  EXPECT_EQ(result.log_sum_exp->shape, (std::vector<int64_t>{300, 2}));
  ASSERT_EQ(result.log_sum_exp->data.size(), 300 * 2 * sizeof(float));
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 300 * 2 * (4 + 1) * 4);

  request.kernel = result.report.kernel.kernel;
  const AttentionResult& plain = Run(request);
  EXPECT_EQ(std::memcmp(plain.log_sum_exp->data.data(), result.log_sum_exp->data.data(),
                        plain.log_sum_exp->data.size()),
            0);
  request.return_log_sum_exp = false;
  EXPECT_FALSE(Run(request).log_sum_exp.has_value());
  answers_.Clear();
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
  EXPECT_EQ(engine_->stats().memory.host_in_use_bytes, 0);
}

TEST_F(EngineFallbackTest, EndsAtVanilla) {
  Start();
  script_->clustered_error = 0.04;
  AttentionRequest request = Request({300}, Automatic{{}, 0.02});
  request.fidelity_rows = 7;
  const AttentionResult& result = Run(std::move(request));
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kVanilla);
  EXPECT_FALSE(result.report.fidelity.has_value()) << "vanilla is exact";
  EXPECT_EQ(result.report.kernel.rejected.size(), 2u);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla, kImproved, kVanilla, kVanilla}));
  EXPECT_EQ(script_->launches().back().query_tokens, std::vector<int64_t>{300});

  EXPECT_EQ(StatsOf(kVanilla).automatic_requests, 1u);
  EXPECT_EQ(StatsOf(kVanilla).answered(), 1u) << "one answer";
  EXPECT_EQ(StatsOf(kClustered).answered(), 0u);
  EXPECT_EQ(StatsOf(kClustered).batches, 1u);
  EXPECT_EQ(StatsOf(kClustered).automatic_rejected, 1u);
  EXPECT_EQ(StatsOf(kImproved).automatic_rejected, 1u);
  EXPECT_EQ(StatsOf(kClustered).queue_seconds.count(), 1u);
  EXPECT_EQ(StatsOf(kVanilla).queue_seconds.count(), 0u) << "it waited once";
  EXPECT_EQ(StatsOf(kClustered).relative_error.count(), 1u);
  EXPECT_TRUE(StatsOf(kVanilla).relative_error.bounds.empty());
  EXPECT_EQ(engine_->stats().fidelity_seconds.count(), 2u);
}

TEST_F(EngineFallbackTest, SkipsAKernelThatIsNotExpectedToBeCloseEnough) {
  Start();
  const AttentionResult& result = Run(Request({300}, Automatic{{}, 0.01}));
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kVanilla);
  EXPECT_EQ(result.report.kernel.rejected.size(), 1u);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla, kVanilla}));
}

TEST_F(EngineFallbackTest, WithoutVanillaReturnsTheLeastEstimate) {
  script_->clustered_error = 0.1;
  script_->improved_error = 0.2;
  Start();
  AttentionRequest request = Request({300}, Automatic{{kClustered, kImproved}, 0.01});
  const AttentionResult& result = Run(request);
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kClustered);
  EXPECT_NEAR(result.report.fidelity->relative_error, 0.1, 1e-6);
  ASSERT_EQ(result.report.kernel.rejected.size(), 1u);
  EXPECT_EQ(NameOf(result.report.kernel.rejected[0].kernel), kImproved);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla, kImproved, kVanilla, kClustered}));
  request.kernel = result.report.kernel.kernel;
  const AttentionResult& plain = Run(request);
  EXPECT_EQ(
      std::memcmp(plain.output.data.data(), result.output.data.data(), plain.output.data.size()),
      0);
}

TEST_F(EngineFallbackTest, InputsThatAreNotFiniteEndAtVanillaToo) {
  Start();
  AttentionRequest request = Request({100}, Automatic{{}, 1});
  (*data_.back())[3] = INFINITY;
  const AttentionResult& result = Run(std::move(request));
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kVanilla);
}

}  // namespace
}  // namespace castor
