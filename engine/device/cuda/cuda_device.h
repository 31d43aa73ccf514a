// A GPU behind the Device interface.
//
// Three streams, from LibTorch's pool: copies in, compute, copies out, so that the next batch's
// inputs travel while this one computes and the last one's outputs leave. The thread rules are
// Device's: the engine thread, except for info, host_pool, variants, memory and healthy.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/attention/cuda/variants_cuda.h"
#include "engine/device/cuda/faults.h"
#include "engine/device/cuda/launch/execution.h"
#include "engine/device/device.h"

namespace castor {

class CudaDevice : public Device {
 public:
  // Fails if there is no driver, no such device, or its compute capability is below 8.0. The error
  // says which.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(int index, const EngineOptions& options);

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<HostPool> host_pool() const override { return host_pool_; }
  std::span<const attention::Variant> variants() const override;
  MemoryStats memory() const override;
  bool healthy() const override { return faults_.healthy(); }
  bool copies_tensors() const override { return true; }
  int depth() const override { return 2; }

  absl::StatusOr<std::shared_ptr<encoder::Model>> LoadModel(const ModelSource& source) override;
  // Checkpoints are where work is queued: before each piece of an attention batch, and in each
  // layer of a model. An attention batch that is predicted to take long is launched in pieces, and
  // then Launch returns when all but two of them are done.
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch,
                                                    RunControl& control) override;
  absl::StatusOr<std::unique_ptr<Execution>> Launch(const encoder::Batch& batch,
                                                    RunControl& control) override;

  // The longest that a launch of attention should take; a check sets it to cut all that can be cut.
  void SetLaunchTarget(double us) { launch_target_us_ = us; }

 private:
  CudaDevice(at::Device device, DeviceInfo info, std::shared_ptr<HostPool> host_pool);

  absl::Status LaunchAttention(const AttentionBatch& batch, CudaExecution& execution,
                               RunControl& control);
  // Queues the kernels of a packed batch, in one piece or several.
  absl::StatusOr<attention::cuda::Computed> QueuePieces(const attention::Variant& variant,
                                                        const attention::Spec& spec,
                                                        const attention::Problem& batch,
                                                        CudaExecution& execution,
                                                        RunControl& control);
  absl::Status LaunchEncoder(const encoder::Batch& batch, CudaExecution& execution,
                             RunControl& control);

  // One attention layer inside a model's forward pass.
  absl::Status RunAttention(const attention::Spec& spec, const attention::Problem& problem,
                            RunControl& control);

  // Keeps the allocator's peak, which a launch resets. Returns that of the current launch.
  int64_t NotePeak();

  // Runs `launch` with the device and its compute stream current, and measures its memory.
  template <typename Launcher>
  absl::StatusOr<std::unique_ptr<Execution>> RunLaunch(Launcher&& launch);

  const at::Device device_;
  const DeviceInfo info_;
  const std::shared_ptr<HostPool> host_pool_;
  const Streams streams_;
  Faults faults_;
  std::atomic<int64_t> peak_bytes_{0};
  int64_t launch_peak_ = 0;
  double launch_target_us_ = 2000;
  std::string_view encoder_backend_;  // what the attention layers of the last forward pass ran on
};

}  // namespace castor
