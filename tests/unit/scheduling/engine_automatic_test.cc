// The automatic kernel and the fidelity probe through the engine, on a device whose errors the
// tests set.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/scheduling/approximate_device.h"
#include "tests/unit/scheduling/engine_fixture.h"

namespace castor {
namespace {

constexpr KernelName kVanilla = KernelName::kVanilla;
constexpr KernelName kClustered = KernelName::kClustered;
constexpr KernelName kImproved = KernelName::kImprovedClustered;

// Clustered is cheapest, then improved, then vanilla, as soon as the probe pays.
attention::CostModel SomeCosts() {
  attention::CostModel model;
  int factor = 100;
  for (KernelName name : {kVanilla, kImproved, kClustered}) {
    attention::CostTerms prices{};
    prices[static_cast<size_t>(attention::CostTerm::kLaunch)] = factor;
    factor /= 10;
    model.Set(name, DType::kFloat32, prices);
  }
  return model;
}

class EngineAutomaticTest : public testing::Test {
 protected:
  EngineAutomaticTest() { options_.cost_model_budget = std::chrono::milliseconds(0); }

  void Start() {
    auto engine = TryStart();
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  absl::StatusOr<std::unique_ptr<Engine>> TryStart() {
    EngineParts parts;
    parts.open_device =
        [script = script_](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Device>> {
      return std::make_unique<ApproximateDevice>(script);
    };
    parts.costs = costs_;
    return CreateEngineWithParts(options_, std::move(parts));
  }

  // Random self-attention over sequences of these lengths, 2 heads of 4.
  AttentionRequest Request(std::vector<int64_t> lengths, Kernel kernel) {
    int64_t tokens = 0;
    for (const int64_t length : lengths) tokens += length;
    std::normal_distribution<float> normal;
    const auto tensor = [&] {
      auto& data = data_.emplace_back(std::make_unique<std::vector<float>>(tokens * 8));
      for (float& element : *data) element = normal(random_);
      return TensorInput{DType::kFloat32, {tokens, 2, 4}, {std::as_bytes(std::span(*data))}};
    };
    AttentionRequest request;
    request.query = tensor();
    request.key = tensor();
    request.value = tensor();
    request.query_lengths = std::move(lengths);
    request.kernel = std::move(kernel);
    return request;
  }

  void Submit(AttentionRequest request, int id) {
    auto ticket = engine_->Submit(std::move(request), answers_.Slot(id));
    ASSERT_TRUE(ticket.ok()) << ticket.status();
  }

  const AttentionResult& Run(AttentionRequest request) {
    const int id = next_id_++;
    Submit(std::move(request), id);
    const auto& result = answers_.Get(id);
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  }

  WorkStats StatsOf(KernelName kernel) const {
    for (const WorkStats& work : engine_->stats().work) {
      if (work.kernel == NameOf(kernel)) return work;
    }
    ADD_FAILURE() << "no statistics of " << NameOf(kernel);
    return {};
  }

  std::vector<KernelName> Launched() const {
    std::vector<KernelName> kernels;
    for (const auto& launch : script_->launches()) kernels.push_back(launch.kernel);
    return kernels;
  }

  const uint32_t seed_ = FreshSeed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
  EngineOptions options_;
  attention::CostModel costs_ = SomeCosts();
  std::shared_ptr<ApproximateScript> script_ = std::make_shared<ApproximateScript>();
  int next_id_ = 1000;
  Answers<AttentionResult> answers_;
  std::vector<std::unique_ptr<std::vector<float>>> data_;
  std::unique_ptr<Engine> engine_;  // last: its completions use the rest
};

using Kernels = std::vector<KernelName>;

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

class EngineLadderTest : public EngineAutomaticTest {
 protected:
  // From some 200 tokens on, each kernel is worth trying before the next.
  EngineLadderTest() {
    costs_.Set(kVanilla, DType::kFloat32, attention::CostTerms{0, 0, 0, 1e6});
    costs_.Set(kImproved, DType::kFloat32, attention::CostTerms{0, 0, 0, 6e5});
  }
};

TEST_F(EngineLadderTest, KeepsAnApproximationWithinTheAllowance) {
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
  EXPECT_NEAR(result.report.fidelity->relative_error, 0.3, 1e-6);
  EXPECT_GT(result.report.fidelity->probe_us, 0);
  // The run, and the probe of 32 rows of the one and all 10 of the other sequence.
  EXPECT_EQ(script_->launches(),
            (std::vector<ApproximateLaunch>{{kClustered, {310}}, {kVanilla, {32 + 10}}}));
}

TEST_F(EngineLadderTest, RecomputesWithTheNextKernelWhenTheErrorIsTooLarge) {
  Start();
  AttentionRequest request = Request({300}, Automatic{{}, 0.1});
  const AttentionResult& result = Run(request);
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kImproved);
  EXPECT_EQ(result.report.kernel.backend, "better");
  // 2 heads of 100 centroids by 300 keys in 4 + 4 dimensions.
  EXPECT_DOUBLE_EQ(result.report.kernel.predicted_us, 6e5 * 2 * 100 * 300 * 8 * 1e-6);
  EXPECT_NEAR(result.report.fidelity->relative_error, 0.05, 1e-6);
  ASSERT_EQ(result.report.kernel.rejected.size(), 1u);
  EXPECT_EQ(result.report.kernel.rejected[0].kernel, kClustered);
  EXPECT_NEAR(result.report.kernel.rejected[0].relative_error, 0.3, 1e-6);
  EXPECT_EQ(result.report.kernel.rejected[0].measured_us, 200);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla, kImproved, kVanilla}));

  // The output is the accepted kernel's.
  request.kernel = ImprovedClustered{};
  const AttentionResult& plain = Run(request);
  ASSERT_EQ(plain.output.data.size(), result.output.data.size());
  EXPECT_EQ(
      std::memcmp(plain.output.data.data(), result.output.data.data(), plain.output.data.size()),
      0);
}

TEST_F(EngineLadderTest, EndsAtVanilla) {
  Start();
  AttentionRequest request = Request({300}, Automatic{{}, 0.01});
  request.fidelity_rows = 7;
  const AttentionResult& result = Run(std::move(request));
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kVanilla);
  EXPECT_FALSE(result.report.fidelity.has_value()) << "vanilla is exact";
  EXPECT_EQ(result.report.kernel.rejected.size(), 2u);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla, kImproved, kVanilla, kVanilla}));
  EXPECT_EQ(script_->launches().back().query_tokens, std::vector<int64_t>{300});

  EXPECT_EQ(StatsOf(kVanilla).automatic_requests, 1u);
  EXPECT_EQ(StatsOf(kVanilla).requests, 1u) << "one answer";
  EXPECT_EQ(StatsOf(kClustered).requests, 0u);
  EXPECT_EQ(StatsOf(kClustered).batches, 1u);
  EXPECT_EQ(StatsOf(kClustered).automatic_rejected, 1u);
  EXPECT_EQ(StatsOf(kImproved).automatic_rejected, 1u);
  EXPECT_EQ(StatsOf(kClustered).queue_seconds.count(), 1u);
  EXPECT_EQ(StatsOf(kVanilla).queue_seconds.count(), 0u) << "it waited once";
  EXPECT_EQ(StatsOf(kClustered).relative_error.count(), 1u);
  EXPECT_TRUE(StatsOf(kVanilla).relative_error.bounds.empty());
  EXPECT_EQ(engine_->stats().fidelity_seconds.count(), 2u);
}

TEST_F(EngineLadderTest, WithoutVanillaReturnsTheLeastEstimate) {
  script_->clustered_error = 0.1;
  script_->improved_error = 0.2;
  Start();
  AttentionRequest request = Request({300}, Automatic{{kClustered, kImproved}, 0.01});
  const AttentionResult& result = Run(request);
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kClustered);
  EXPECT_NEAR(result.report.fidelity->relative_error, 0.1, 1e-6);
  ASSERT_EQ(result.report.kernel.rejected.size(), 1u);
  EXPECT_EQ(result.report.kernel.rejected[0].kernel, kImproved);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla, kImproved, kVanilla, kClustered}));
  request.kernel = Clustered{};
  const AttentionResult& plain = Run(request);
  EXPECT_EQ(
      std::memcmp(plain.output.data.data(), result.output.data.data(), plain.output.data.size()),
      0);
}

TEST_F(EngineLadderTest, InputsThatAreNotFiniteEndAtVanillaToo) {
  Start();
  AttentionRequest request = Request({100}, Automatic{{}, 1});
  (*data_.back())[3] = INFINITY;
  const AttentionResult& result = Run(std::move(request));
  EXPECT_EQ(NameOf(result.report.kernel.kernel), kVanilla);
}

// One batch holds requests that are satisfied, that go on by different ways, and that never asked.
TEST_F(EngineLadderTest, RequestsOfOneBatchGoTheirOwnWays) {
  Start();
  Mutex mu;
  CondVar changed;
  bool open = false;
  script_->SetHook([&](const ApproximateLaunch&) {
    MutexLock lock(mu);
    while (!open) changed.Wait(mu);
    return absl::OkStatus();
  });
  Submit(Request({5}, Vanilla{}), 0);  // occupies the device while the others gather
  Submit(Request({200}, Automatic{{}, 0.5}), 1);
  Submit(Request({201}, Automatic{{}, 0.1}), 2);
  Submit(Request({202}, Automatic{{kClustered, kVanilla}, 0.1}), 3);
  Submit(Request({203}, Clustered{}), 4);
  AttentionRequest asked = Request({204}, Clustered{});
  asked.fidelity_rows = 3;
  Submit(std::move(asked), 5);
  {
    MutexLock lock(mu);
    open = true;
    changed.NotifyAll();
  }
  for (int id = 0; id <= 5; ++id) ASSERT_TRUE(answers_.Get(id).ok()) << id;
  const auto kernel = [&](int id) { return NameOf(answers_.Get(id)->report.kernel.kernel); };
  EXPECT_EQ(kernel(1), kClustered);
  EXPECT_EQ(kernel(2), kImproved);
  EXPECT_EQ(kernel(3), kVanilla);
  EXPECT_EQ(kernel(4), kClustered);
  EXPECT_EQ(kernel(5), kClustered);
  EXPECT_TRUE(answers_.Get(1)->report.fidelity.has_value());
  EXPECT_FALSE(answers_.Get(3)->report.fidelity.has_value());
  EXPECT_FALSE(answers_.Get(4)->report.fidelity.has_value());
  EXPECT_EQ(answers_.Get(4)->report.kernel.predicted_us, 0);
  EXPECT_EQ(answers_.Get(5)->report.fidelity->rows, 3);
  EXPECT_NEAR(answers_.Get(5)->report.fidelity->relative_error, 0.3, 1e-6);
  EXPECT_EQ(answers_.Get(4)->report.batch.requests, 5);
}

TEST_F(EngineLadderTest, AnswersAreTheSameAloneInCompanyAndAgain) {
  Start();
  std::vector<AttentionRequest> requests;
  for (int i = 0; i < 24; ++i) {
    const double allowance = std::vector<double>{0.5, 0.1, 0.01}[random_() % 3];
    requests.push_back(
        Request({static_cast<int64_t>(random_() % 90 + 220)}, Automatic{{}, allowance}));
  }
  std::vector<const AttentionResult*> alone;
  for (const AttentionRequest& request : requests) alone.push_back(&Run(request));
  for (int round = 0; round < 3; ++round) {
    const int first = 100 * round;
    for (size_t i = 0; i < requests.size(); ++i) Submit(requests[i], first + static_cast<int>(i));
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto& result = answers_.Get(first + static_cast<int>(i));
      ASSERT_TRUE(result.ok());
      EXPECT_EQ(NameOf(result->report.kernel.kernel), NameOf(alone[i]->report.kernel.kernel));
      EXPECT_EQ(std::memcmp(result->output.data.data(), alone[i]->output.data.data(),
                            alone[i]->output.data.size()),
                0);
      EXPECT_EQ(result->report.fidelity.has_value(), alone[i]->report.fidelity.has_value());
      if (result->report.fidelity) {
        EXPECT_EQ(result->report.fidelity->relative_error,
                  alone[i]->report.fidelity->relative_error);
      }
    }
  }
}

TEST_F(EngineLadderTest, ACancelledRequestDoesNotRunItsNextKernel) {
  Start();
  std::atomic<Ticket> ticket = 0;
  script_->SetHook([&](const ApproximateLaunch& launch) {
    ticket.wait(0);  // until the request's ticket is known
    // The probe: after the approximation, before the next kernel.
    if (launch.kernel == kVanilla) engine_->Cancel(ticket);
    return absl::OkStatus();
  });
  auto submitted = engine_->Submit(Request({300}, Automatic{{}, 0.01}), answers_.Slot(1));
  ASSERT_TRUE(submitted.ok());
  ticket = *submitted;
  ticket.notify_all();
  EXPECT_EQ(ReasonOf(answers_.Get(1).status()), Reason::kCancelled);
  EXPECT_EQ(Launched(), (Kernels{kClustered, kVanilla}));
}

TEST_F(EngineLadderTest, AProbeThatFailsFailsOnlyWhoAskedForIt) {
  options_.fidelity_share = 1;
  Start();
  script_->SetHook([](const ApproximateLaunch& launch) {
    return launch.kernel == kVanilla ? MakeError(Reason::kOutOfMemory, "no room for the probe")
                                     : absl::OkStatus();
  });
  Submit(Request({100}, Clustered{}), 1);
  ASSERT_TRUE(answers_.Get(1).ok()) << "picked for the statistics only";
  AttentionRequest asked = Request({100}, Clustered{});
  asked.fidelity_rows = 3;
  Submit(std::move(asked), 2);
  EXPECT_EQ(ReasonOf(answers_.Get(2).status()), Reason::kOutOfMemory);
  Submit(Request({100}, Automatic{{}, 0.5}), 3);
  EXPECT_EQ(ReasonOf(answers_.Get(3).status()), Reason::kOutOfMemory);
  EXPECT_EQ(StatsOf(kClustered).requests, 1u);
}

// Runs, probes and further runs that fail at random, with callers who go away meanwhile: every
// request is answered once, and nothing stays reserved.
TEST_F(EngineLadderTest, AnswersEveryRequestOnceWhateverHappensBetweenItsRuns) {
  constexpr int kThreads = 3;
  const int each = Scaled(100);
  options_.fidelity_share = 0.5;
  options_.fidelity_sample_rows = 3;
  Start();
  std::mt19937 trouble(seed_);  // the engine thread's
  script_->SetHook([&trouble](const ApproximateLaunch&) {
    const auto dice = trouble() % 20;
    if (dice == 0) return MakeError(Reason::kOutOfMemory, "no room now");
    if (dice == 1) return MakeError(Reason::kInternal, "a fault");
    return absl::OkStatus();
  });
  std::vector<AttentionRequest> requests;
  for (int i = 0; i < kThreads * each; ++i) {
    const Kernel kernels[] = {Automatic{{}, 0.5},  Automatic{{}, 0.1},
                              Automatic{{}, 0.01}, Automatic{{kClustered, kImproved}, 0.01},
                              Clustered{},         Vanilla{}};
    requests.push_back(
        Request({static_cast<int64_t>(random_() % 60 + 200)}, kernels[random_() % 6]));
    requests.back().fidelity_rows = random_() % 4 == 0 ? 5 : 0;
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * each; i < (t + 1) * each; ++i) {
        auto ticket = engine_->Submit(requests[i], answers_.Slot(i));
        ASSERT_TRUE(ticket.ok()) << ticket.status();
        if (i % 5 == 0) engine_->Cancel(*ticket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));
  EXPECT_EQ(answers_.size(), requests.size());
  uint64_t ok = 0;
  for (int i = 0; i < kThreads * each; ++i) {
    EXPECT_EQ(answers_.count(i), 1u) << i;
    const auto& answer = answers_.Get(i);
    ok += answer.ok();
    const auto* automatic = std::get_if<Automatic>(&requests[i].kernel);
    if (!answer.ok() || automatic == nullptr || !automatic->allowed.empty()) continue;
    if (answer->report.fidelity) {
      EXPECT_LE(answer->report.fidelity->relative_error, automatic->max_relative_error);
    }
  }
  uint64_t counted = 0;
  for (const WorkStats& work : engine_->stats().work) counted += work.requests;
  EXPECT_EQ(counted, ok);
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
  EXPECT_EQ(engine_->stats().load.inflight_requests, 0);
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
  options_.fidelity_sample_rows = 2;
  Start();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Run(Request({10}, Clustered{})).report.fidelity.has_value());
    Run(Request({10}, Vanilla{}));
  }
  EXPECT_EQ(StatsOf(kClustered).relative_error.count(), 6u);
  EXPECT_NEAR(StatsOf(kClustered).relative_error.sum, 6 * 0.3, 1e-5);
  EXPECT_EQ(StatsOf(kImproved).relative_error.count(), 0u);
  EXPECT_EQ(StatsOf(kClustered).requests, 20u);
  EXPECT_EQ(StatsOf(kClustered).automatic_requests, 0u);
}

TEST_F(EngineAutomaticTest, AdmitsAKernelsWorkspaceWithTheRequest) {
  options_.max_queued_bytes = 64 * 1024;
  Start();
  // 40 tokens: 40 * 8 * 4 * 4 = 5 KiB of tensors, and 44 KiB of workspace.
  Run(Request({40}, Clustered{}));
  // 60 tokens need 7.5 KiB and 64 KB: too large with it, and not without.
  auto refused = engine_->Submit(Request({60}, Clustered{}), answers_.Slot(1));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kTooLarge);
  EXPECT_NE(refused.status().message().find("workspace for the kernel clustered"),
            std::string::npos)
      << refused.status();
  Run(Request({60}, Vanilla{}));

  // While it runs, the part that is its own is in use.
  int64_t in_use = 0;
  script_->SetHook([&](const ApproximateLaunch&) {
    in_use = engine_->stats().load.inflight_bytes;
    return absl::OkStatus();
  });
  Run(Request({20}, Clustered{}));
  EXPECT_EQ(in_use, 20 * 8 * 4 * 4 + 19 * ApproximateDevice::kWorkspacePerToken);
  EXPECT_EQ(engine_->stats().load.inflight_bytes, 0);
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
  for (const int32_t bad : {0, 1025}) {
    options_.fidelity_sample_rows = bad;
    EXPECT_EQ(field(), "fidelity_sample_rows");
  }
  options_.fidelity_sample_rows = 1;
  options_.cost_model_budget = std::chrono::milliseconds(-1);
  EXPECT_EQ(field(), "cost_model_budget");
}

TEST(FidelitySamplingTest, PicksTheShareEvenly) {
  for (const double share : {0.0, 0.01, 0.25, 0.7, 1.0}) {
    FidelitySampling sampling(share, 16);
    int picked = 0;
    for (int i = 1; i <= 1000; ++i) {
      const int32_t rows = sampling.NextRows();
      EXPECT_TRUE(rows == 0 || rows == 16);
      picked += rows > 0;
      EXPECT_NEAR(picked, i * share, 1) << "after " << i;
    }
  }
}

// Measured on this device, which is no slower than a device that computes nothing.
TEST_F(EngineAutomaticTest, MeasuresItsCostsAtTheStart) {
  EngineParts parts;
  parts.open_device =
      [script = script_](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Device>> {
    return std::make_unique<ApproximateDevice>(script);
  };
  std::string folder = testing::TempDir() + "castor-engine-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  options_.cost_model_cache = folder;
  options_.cost_model_budget = std::chrono::milliseconds(1);
  auto engine = CreateEngineWithParts(options_, std::move(parts));
  ASSERT_TRUE(engine.ok());
  EXPECT_FALSE(script_->launches().empty());
  EXPECT_NE((*engine)->info().cost_model.note, "") << "a millisecond is not enough";
}

}  // namespace
}  // namespace castor
