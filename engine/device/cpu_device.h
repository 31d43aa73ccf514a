// The CPU as a device: computes at launch, on the tensor library's thread team.
//
// Owned and called by one engine thread, as device.h says. The thread team is that thread's: Open
// sizes it, so the device must be opened on the thread that will launch.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/device/device.h"

namespace castor {

class CpuDevice : public Device {
 public:
  // `note` is added to DeviceInfo::backend: why no GPU is used, when one was looked for.
  static std::unique_ptr<Device> Open(const EngineOptions& options, const std::string& note);

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<HostPool> host_pool() const override { return host_pool_; }
  std::span<const attention::Variant> variants() const override;
  MemoryStats memory() const override;
  bool healthy() const override { return true; }
  int depth() const override { return 1; }

  absl::StatusOr<std::shared_ptr<encoder::Model>> LoadModel(const ModelSource& source) override;
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch,
                                                    RunControl& control) override;
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const encoder::Batch& batch,
                                                    RunControl& control) override;

 private:
  // Bytes of the models that are alive; models may outlive the device.
  struct WeightBytes {
    std::atomic<int64_t> now = 0;
    std::atomic<int64_t> peak = 0;
  };

  CpuDevice(DeviceInfo info, std::shared_ptr<HostPool> host_pool)
      : info_(std::move(info)), host_pool_(std::move(host_pool)) {}

  // The backend and the memory of a launch.
  struct LaunchStats {
    std::string_view backend;
    int64_t workspace_bytes = 0;
  };

  // Times `compute`, which returns an absl::Status.
  template <typename Body>
  absl::StatusOr<std::unique_ptr<Execution>> RunLaunch(const RunControl& control, Body&& compute);

  absl::Status RunAttention(const attention::Spec& spec,
                            std::span<const attention::Problem> problems, RunControl& control);

  const DeviceInfo info_;
  const std::shared_ptr<HostPool> host_pool_;
  const std::shared_ptr<WeightBytes> weights_ = std::make_shared<WeightBytes>();

  // The stats of this thread's current launch. The loader's thread has its own, since it runs
  // models in 8 bits to compare them.
  static thread_local LaunchStats stats_;
};

}  // namespace castor
