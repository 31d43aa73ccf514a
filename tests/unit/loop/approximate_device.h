// A device with two approximate kernels of known errors. Vanilla computes exact attention (with its
// twin, in float32). The clustered kernels scale that by 1 + error, so the relative error of any
// rows is the one that the test has set.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mutex.h"
#include "tests/support/twins/vanilla.h"
#include "tests/unit/loop/instant_device.h"

namespace castor {

// A launch on the device.
struct ApproximateLaunch {
  KernelName kernel;
  std::vector<int64_t> query_tokens;  // per request

  bool operator==(const ApproximateLaunch&) const = default;
};

// The test's control of the device. Thread-safe; shared with the device.
class ApproximateScript {
 public:
  // Set before the engine is created.
  double clustered_error = 0.3;
  double improved_error = 0.05;
  double vanilla_us = 100;  // the reported time of a launch

  // Called on the engine thread before each launch; an error fails it.
  void SetHook(std::function<absl::Status(const ApproximateLaunch&)> hook) {
    MutexLock lock(mu_);
    hook_ = std::move(hook);
  }

  std::vector<ApproximateLaunch> launches() const {
    MutexLock lock(mu_);
    return launches_;
  }

  absl::Status Begin(ApproximateLaunch launch) {
    std::function<absl::Status(const ApproximateLaunch&)> hook;
    {
      MutexLock lock(mu_);
      launches_.push_back(launch);
      hook = hook_;
    }
    return hook ? hook(launch) : absl::OkStatus();
  }

 private:
  mutable Mutex mu_;
  std::function<absl::Status(const ApproximateLaunch&)> hook_ ABSL_GUARDED_BY(mu_);
  std::vector<ApproximateLaunch> launches_ ABSL_GUARDED_BY(mu_);
};

class ApproximateDevice : public InstantDevice {
 public:
  // Clustered takes 1000 bytes per query token, plus 5000 for any request.
  static constexpr int64_t kWorkspacePerToken = 1000;
  static constexpr int64_t kSharedWorkspace = 5000;

  explicit ApproximateDevice(std::shared_ptr<ApproximateScript> script)
      : InstantDevice("approximate"), script_(std::move(script)) {}

  std::span<const attention::Variant> variants() const override {
    static constexpr attention::Variant kVariants[] = {
        {KernelName::kVanilla, "exact", &Supports, nullptr},
        {KernelName::kClustered, "rough", &Supports, nullptr, &Workspace},
        {KernelName::kImprovedClustered, "better", &Supports, nullptr},
    };
    return kVariants;
  }
  using InstantDevice::Launch;

  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch,
                                                    RunControl&) override {
    ApproximateLaunch launch{NameOf(batch.spec.kernel), {}};
    for (const auto& problem : batch.requests) {
      launch.query_tokens.push_back(problem.query_tokens());
    }
    if (auto status = script_->Begin(launch); !status.ok()) return status;
    double factor = 1;
    if (launch.kernel == KernelName::kClustered) factor += script_->clustered_error;
    if (launch.kernel == KernelName::kImprovedClustered) factor += script_->improved_error;
    attention::Spec exact = batch.spec;
    exact.kernel = Vanilla{};
    for (const auto& problem : batch.requests) {
      std::vector<double> log_sum_exp;
      const std::vector<double> output = attention::VanillaReference(exact, problem, &log_sum_exp);
      for (size_t i = 0; i < output.size(); ++i) {
        reinterpret_cast<float*>(problem.output)[i] = static_cast<float>(factor * output[i]);
      }
      for (size_t i = 0; problem.log_sum_exp != nullptr && i < log_sum_exp.size(); ++i) {
        problem.log_sum_exp[i] = static_cast<float>(factor * log_sum_exp[i]);
      }
    }
    ExecutionTimes times;
    times.compute_us = launch.kernel == KernelName::kVanilla
                           ? script_->vanilla_us
                           : 100 * static_cast<double>(1 + static_cast<int>(launch.kernel));
    times.backend = attention::FindVariant(variants(), batch.spec)->backend;
    return Finished(times);
  }

 private:
  static bool Supports(const attention::Spec& spec) { return spec.dtype == DType::kFloat32; }
  static int64_t Workspace(const attention::Spec&, std::span<const int32_t> cu_seqlens_q,
                           std::span<const int32_t>) {
    return kSharedWorkspace + kWorkspacePerToken * (cu_seqlens_q.back() - 1);
  }

  const std::shared_ptr<ApproximateScript> script_;
};

}  // namespace castor
