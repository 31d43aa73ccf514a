// The automatic kernel's options and the fidelity probe through the engine.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

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

TEST_F(EngineAutomaticTest, AKernelsWorkspaceIsOfTheDevicesMemoryWhileItRuns) {
  constexpr int64_t kBudget = 4'000'000;
  options_.max_device_bytes = kBudget;
  Start();
  Run(Request({3000}, Clustered{}));
  auto refused = engine_->Submit(Request({4000}, Clustered{}), answers_.Slot(1));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kTooLarge);
  EXPECT_NE(refused.status().message().find("--max-device-bytes"), std::string::npos)
      << refused.status();
  Run(Request({4000}, Vanilla{}));

  answers_.Clear();
  LoadStats load;
  script_->SetHook([&](const ApproximateLaunch&) {
    load = engine_->stats().load;
    return absl::OkStatus();
  });
  Run(Request({2000}, Clustered{}));
  const int64_t workspace =
      ApproximateDevice::kSharedWorkspace + 1999 * ApproximateDevice::kWorkspacePerToken;
  EXPECT_GE(load.device_bytes, workspace);
  EXPECT_LE(load.device_bytes, workspace * 5 / 4);
  EXPECT_EQ(load.max_device_bytes, kBudget);
  EXPECT_EQ(load.inflight_bytes, 2000 * 8 * 4 * 4) << "staging memory alone";
  answers_.Clear();
  load = engine_->stats().load;
  EXPECT_EQ(load.device_bytes, 0);
  EXPECT_EQ(load.inflight_bytes, 0);
}

TEST_F(EngineAutomaticTest, OptionsOutOfRangeAreNamed) {
  const auto field = [&] {
    auto engine = TryStart();
    return engine.ok() ? "" : FieldOf(engine.status()).value_or("");
  };
  for (const double bad : {-0.1, 1.1, std::nan("")}) {
    options_.fidelity_share = bad;
    EXPECT_EQ(field(), "fidelity_share") << bad;
  }
  options_.fidelity_share = 0;
  options_.cost_model_budget = std::chrono::milliseconds(-1);
  EXPECT_EQ(field(), "cost_model_budget");
}

// The cost model is measured on the test's device.
TEST_F(EngineAutomaticTest, MeasuresItsCostsAtTheStart) {
  EngineParts parts;
  parts.open_device =
      [script = script_](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Device>> {
    return std::make_unique<ApproximateDevice>(script);
  };
  options_.cost_model_budget = std::chrono::milliseconds(1);
  auto engine = CreateEngineWithParts(options_, std::move(parts));
  ASSERT_TRUE(engine.ok());
  EXPECT_FALSE(script_->launches().empty());
  EXPECT_NE((*engine)->info().cost_model.note, "") << "a millisecond is not enough";
}

}  // namespace
}  // namespace castor
