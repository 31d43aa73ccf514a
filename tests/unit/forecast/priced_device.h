// A device with known costs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/forecast/cost_model.h"
#include "engine/kernel_table.h"
#include "tests/unit/loop/instant_device.h"

namespace castor {

// Computes nothing, and reports the times that these prices give.
class PricedDevice : public InstantDevice {
 public:
  // Half-precision is dearer or cheaper, and each kernel dearer than the one before; the launch is
  // dearest.
  static double Price(KernelName kernel, DType dtype, size_t term) {
    const double factor = dtype == DType::kFloat32 ? 1 : dtype == DType::kBFloat16 ? 0.75 : 3;
    return term == 0 ? 2 : factor * (1 + 0.25 * static_cast<int>(kernel));
  }

  explicit PricedDevice(bool fails = false) : InstantDevice("priced"), fails_(fails) {}

  int launches() const { return launches_; }
  void OnLaunch(std::function<void()> then) { on_launch_ = std::move(then); }

  std::span<const attention::Variant> variants() const override {
    static constexpr auto kSupports = [](const attention::Spec& spec) {
      return spec.dtype != DType::kInt32;
    };
    static constexpr attention::Variant kVariants[] = {
        {KernelName::kVanilla, "priced", kSupports, nullptr},
        {KernelName::kClustered, "priced", kSupports, nullptr},
        {KernelName::kImprovedClustered, "priced", kSupports, nullptr},
    };
    return kVariants;
  }
  using InstantDevice::Launch;
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch,
                                                    RunControl&) override {
    ++launches_;
    if (on_launch_) on_launch_();
    if (fails_) return MakeError(Reason::kOutOfMemory, "no room");
    const auto& problem = batch.requests.front();
    const CostTerms terms = CostTermsOf(batch.spec, problem.cu_seqlens_q, problem.cu_seqlens_k);
    ExecutionTimes times;
    for (size_t t = 0; t < kCostTerms; ++t) {
      times.compute_us += terms[t] * Price(NameOf(batch.spec.kernel), batch.spec.dtype, t);
    }
    return Finished(times);
  }

 private:
  const bool fails_;
  std::function<void()> on_launch_;
  int launches_ = 0;
};

}  // namespace castor
