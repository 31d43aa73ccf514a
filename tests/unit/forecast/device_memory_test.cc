// The device's memory budget, and predictions of what requests need.
#include "engine/ledger/device_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/forecast/memory.h"
#include "tests/support/attention/spec.h"
#include "tests/unit/loop/fake_device.h"

namespace castor {
namespace {

using attention::Count;

class SizedDevice : public FakeDevice {
 public:
  SizedDevice(int64_t bytes, bool copies)
      : FakeDevice(std::make_shared<FakeScript>()), copies_(copies) {
    info_.memory_bytes = bytes;
  }
  const DeviceInfo& info() const override { return info_; }
  bool copies_tensors() const override { return copies_; }

 private:
  DeviceInfo info_;
  const bool copies_;
};

TEST(DeviceBudgetTest, ByDefaultItIsAShareOfTheMemory) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(AutomaticDeviceBytes(SizedDevice(16 * kGiB, false)), 8 * kGiB);
  EXPECT_EQ(AutomaticDeviceBytes(SizedDevice(80 * kGiB, true)), 75 * kGiB);
  EXPECT_EQ(AutomaticDeviceBytes(SizedDevice(8 * kGiB, true)), 7 * kGiB);
  EXPECT_EQ(AutomaticDeviceBytes(SizedDevice(0, true)), DeviceBudget::kNone) << "unknown";
}

// ---- Predictions. tests/unit/forecast/measured_memory_test.cc compares them with the heap.

constexpr int64_t kScratch = 5'000'000;
constexpr int64_t kPerSequence = 10'000;
constexpr int64_t kPerToken = 100;

int64_t RoughWorkspace(const attention::Spec&, std::span<const int32_t> q,
                       std::span<const int32_t>) {
  return kScratch + kPerSequence * static_cast<int64_t>(q.size() - 1) + kPerToken * q.back();
}
int64_t ExactWorkspace(const attention::Spec&, std::span<const int32_t>,
                       std::span<const int32_t> k) {
  return 1000 * int64_t{k.back()};
}
bool Supports(const attention::Spec&) { return true; }

constexpr attention::Variant kVariants[] = {
    {KernelName::kVanilla, "exact", &Supports, nullptr, &ExactWorkspace},
    {KernelName::kClustered, "rough", &Supports, nullptr, &RoughWorkspace},
    {KernelName::kImprovedClustered, "better", &Supports, nullptr},
};

attention::Resolved Of(const Kernel& kernel, std::vector<int32_t> offsets) {
  attention::Resolved resolved;
  resolved.spec = attention::MakeSpec(DType::kFloat32, kernel, 2, 8, 4);
  resolved.cu_seqlens_q = resolved.cu_seqlens_k = std::move(offsets);
  return resolved;
}

TEST(MemoryForecastTest, TellsARequestsOwnWorkspaceFromWhatABatchHasOnce) {
  const MemoryForecast memory(kVariants, /*copies=*/true);
  const auto none = memory.Of(Plan(), Of(ImprovedClustered{}, {0, 30, 100}));
  const auto some = memory.Of(Plan(), Of(Clustered{}, {0, 30, 100}));
  EXPECT_EQ(some.shared - none.shared, kScratch);
  EXPECT_EQ(some.own - none.own, 2 * kPerSequence + 100 * kPerToken);
}

TEST(MemoryForecastTest, ADeviceWithMemoryOfItsOwnHoldsTheTensorsToo) {
  const auto request = Of(ImprovedClustered{}, {0, 1000});
  const int64_t tensors = 1000 * 2 * (8 + 8 + 4 + 4) * 4;
  EXPECT_EQ(MemoryForecast(kVariants, true).Of(Plan(), request).own, tensors);
  EXPECT_LT(MemoryForecast(kVariants, false).Of(Plan(), request).own, tensors / 10);
  const auto cast = Of(Cast{}, {0, 1000});
  EXPECT_GT(MemoryForecast(kVariants, true).Of(Plan(), cast).own, tensors) << "and the gates";
}

// Enough for any kernel that may run, and for the probe of its error.
TEST(MemoryForecastTest, IsEnoughForEveryCandidateAndTheProbe) {
  const MemoryForecast memory(kVariants, /*copies=*/false);
  const auto request = Of(ImprovedClustered{}, {0, 10'000});
  const auto alone = memory.Of(Plan(), request);
  const auto probed = memory.Of(Plan(16, true), request);
  EXPECT_GE(probed.bytes(), alone.bytes());
  EXPECT_GE(probed.bytes(), 10'000 * 1000) << "exact rows need all keys";
  std::vector<attention::Candidate> candidates(2);
  candidates[0].kernel = Clustered{};
  candidates[1].kernel = ImprovedClustered{};
  const auto automatic = memory.Of(Plan(candidates, 0.1, 0), request);
  EXPECT_GE(automatic.shared, kScratch);
}

TEST(MemoryForecastTest, WhatCannotBeCountedNeedsTheMost) {
  const auto request = Of(Clustered{}, {0, 10});
  static constexpr attention::Variant kHuge[] = {
      {KernelName::kClustered, "huge", &Supports, nullptr,
       [](const attention::Spec&, std::span<const int32_t> q, std::span<const int32_t>) {
         return q.back() > 5 ? Count::kMost : 1;
       }}};
  EXPECT_EQ(MemoryForecast(kHuge, true).Of(Plan(), request).bytes(), Count::kMost);
}

class WideModel : public FakeModel {
 public:
  WideModel() : FakeModel("wide") {}
  encoder::Activations activations() const override {
    return {.body = {.rows = {.token = 10}, .layers = {.token = 40}, .batch = 100'000},
            .head = {.pooled = {.sequence = 1000}, .tokens = {.token = 50, .sequence = 1000}}};
  }
};

TEST(MemoryForecastTest, OfAnEncoderTheLargerOfLayersAndHeadCounts) {
  LoadedModel model;
  model.encoder = std::make_shared<WideModel>();
  model.info = model.encoder->info();
  const MemoryForecast memory(kVariants, /*copies=*/false);
  const auto own = [&](EncodeOutput output, std::vector<int32_t> offsets) {
    EncodeRequest request;
    request.output = output;
    return memory.Of(model, ImprovedClustered{}, request, offsets).own;
  };
  constexpr int64_t kLists = 256 + 2 * 100;
  EXPECT_EQ(own(EncodeOutput::kPooled, {0, 100}), 100 * (10 + 40) + kLists);
  EXPECT_EQ(own(EncodeOutput::kPooled, {0, 1}), 10 + 1000 + 256 + 2);
  EXPECT_EQ(own(EncodeOutput::kTokenEmbeddings, {0, 100}), 100 * (10 + 50) + 1000 + kLists);
  EncodeRequest request;
  EXPECT_EQ(
      memory.Of(model, ImprovedClustered{}, request, std::vector<int32_t>{0, 100}).activations,
      100 * (10 + 40));
  EXPECT_GE(memory.Of(model, Clustered{}, request, std::vector<int32_t>{0, 5}).shared,
            100'000 + kScratch);
}

}  // namespace
}  // namespace castor
