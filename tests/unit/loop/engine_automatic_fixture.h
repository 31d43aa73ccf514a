// An engine with known prices, on a device whose errors the tests set.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/attention/prices.h"
#include "tests/support/seeded.h"
#include "tests/unit/loop/approximate_device.h"
#include "tests/unit/loop/engine_fixture.h"

namespace castor {

inline constexpr KernelName kVanilla = KernelName::kVanilla;
inline constexpr KernelName kClustered = KernelName::kClustered;
inline constexpr KernelName kImproved = KernelName::kImprovedClustered;

// Clustered is cheapest, then improved, then vanilla, as soon as the probe pays.
inline std::optional<double> SomePrices(const attention::Spec& spec, std::span<const int32_t>,
                                        std::span<const int32_t>) {
  const KernelName name = NameOf(spec.kernel);
  return name == kVanilla ? 100 : name == kImproved ? 10 : 1;
}

class EngineAutomaticTest : public testing::Test, protected Seeded {
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
    parts.price_of = price_of_;
    parts.predict = predict_;
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

  // Keeps the device busy with an extra request of this id until Release, while others gather.
  void Occupy(int id) {
    script_->SetHook([this](const ApproximateLaunch&) {
      MutexLock lock(mu_);
      while (!released_) changed_.Wait(mu_);
      return absl::OkStatus();
    });
    Submit(Request({5}, Vanilla{}), id);
  }
  void Release() {
    MutexLock lock(mu_);
    released_ = true;
    changed_.NotifyAll();
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

  EngineOptions options_;
  attention::PriceOf price_of_ = SomePrices;
  std::function<PredictedTime(int64_t tokens)> predict_;  // unless set: as forecast
  std::shared_ptr<ApproximateScript> script_ = std::make_shared<ApproximateScript>();
  Mutex mu_;
  CondVar changed_;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
  int next_id_ = 1000;
  Answers<AttentionResult> answers_;
  std::vector<std::unique_ptr<std::vector<float>>> data_;
  std::unique_ptr<Engine> engine_;  // last: its completions use the rest
};

using Kernels = std::vector<KernelName>;

class EngineFallbackTest : public EngineAutomaticTest {
 protected:
  // From about 200 tokens on, clustered with most clusters is worth trying before vanilla, and from
  // 300 on improved with 50 in between, of whose error a little less is to be expected.
  EngineFallbackTest() {
    price_of_ = [of = attention::Prices(1, 1, 1.4)](const attention::Spec& spec, auto... offsets) {
      return NameOf(spec.kernel) == kClustered ? 1.0 : of(spec, offsets...);
    };
    script_->clustered_error = 0.2;
  }
};

}  // namespace castor
