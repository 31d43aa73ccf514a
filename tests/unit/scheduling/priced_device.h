// A device of known costs.
#pragma once

#include <memory>
#include <span>

#include "engine/attention/cost_model.h"
#include "engine/base/error.h"
#include "engine/device/device.h"

namespace castor {

// The kernels that are measured.
inline constexpr KernelName kKernels[] = {KernelName::kVanilla, KernelName::kClustered,
                                          KernelName::kImprovedClustered};

// A device that computes nothing and takes as long as these prices say.
class PricedDevice : public Device {
 public:
  static double Price(KernelName kernel, DType dtype, size_t term) {
    const double factor = dtype == DType::kFloat32 ? 1 : dtype == DType::kBFloat16 ? 0.75 : 3;
    const bool fixed = term < 2;  // no element is touched
    const int index = static_cast<int>(kernel);
    return (term == 0 ? 20 : static_cast<double>(index + 1)) * (fixed ? 1 : factor);
  }

  explicit PricedDevice(bool fails = false) : fails_(fails) { info_.name = "priced"; }

  int launches() const { return launches_; }

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<HostPool> host_pool() const override { return pool_; }
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
  MemoryStats memory() const override { return {}; }
  bool healthy() const override { return true; }
  int depth() const override { return 1; }
  absl::StatusOr<std::shared_ptr<encoder::Model>> LoadModel(const ModelSource&) override {
    return MakeError(Reason::kInternal, "no models here");
  }
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const encoder::Batch&) override {
    return MakeError(Reason::kInternal, "no models here");
  }
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch) override {
    ++launches_;
    if (fails_) return MakeError(Reason::kOutOfMemory, "no room");
    const auto& problem = batch.requests.front();
    const attention::CostTerms terms =
        attention::CostTermsOf(batch.spec, problem.cu_seqlens_q, problem.cu_seqlens_k);
    ExecutionTimes times;
    for (size_t t = 0; t < attention::kCostTerms; ++t) {
      times.compute_us += terms[t] * Price(NameOf(batch.spec.kernel), batch.spec.dtype, t);
    }
    return std::make_unique<Finished>(times);
  }

 private:
  class Finished : public Execution {
   public:
    explicit Finished(const ExecutionTimes& times) : times_(times) {}
    absl::StatusOr<ExecutionTimes> Wait() override { return times_; }

   private:
    const ExecutionTimes times_;
  };

  const bool fails_;
  int launches_ = 0;
  DeviceInfo info_;
  const std::shared_ptr<HostPool> pool_ = MakeHostPool(SystemMemory(), int64_t{64} << 20);
};

}  // namespace castor
