// One device that runs batches: the CPU, or a GPU behind the CUDA module.
//
// A device is owned by one engine thread, which makes every call below except those marked
// otherwise: CUDA's current device and the CPU's thread team are per thread. On the CPU a caller's
// thread may launch in the engine thread's turn (EngineLoop::RunInTurn) what needs no team.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "engine/base/host_memory.h"
#include "engine/base/run_control.h"
#include "engine/encoder/network/batch.h"
#include "engine/engine.h"

namespace castor {

// A batch of attention requests: a Problem for each, all with the same spec, pointing into staging
// (host) memory without gaps between tokens. Must stay alive until its Execution is done.
struct AttentionBatch {
  attention::Spec spec;
  std::vector<attention::Problem> requests;
};

// The measurements of an execution.
struct ExecutionTimes {
  double copy_in_us = 0;
  double compute_us = 0;
  double copy_out_us = 0;
  int64_t workspace_bytes = 0;
  int64_t padded_tokens = 0;
  std::string_view backend;  // the variant that ran
};

// A batch that was launched. The CPU has finished when Launch returns; a GPU is still working.
class Execution {
 public:
  virtual ~Execution() = default;

  // True if Wait would return at once.
  virtual bool Done() const noexcept { return true; }

  // Waits until outputs are in host memory. OUT_OF_MEMORY and INTERNAL are the only errors.
  virtual absl::StatusOr<ExecutionTimes> Wait() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;                        // any thread
  virtual std::shared_ptr<HostPool> host_pool() const = 0;           // any thread
  virtual std::span<const attention::Variant> variants() const = 0;  // any thread
  virtual MemoryStats memory() const = 0;                            // any thread; device_* alone
  virtual bool healthy() const = 0;                                  // any thread

  // True if tensors are copied to memory of the device's own, instead of being used where they are
  // staged. Any thread.
  virtual bool copies_tensors() const { return false; }

  // The number of executions that may be in flight, launched and not waited for: 1 on the CPU, 2 if
  // copies and compute overlap.
  virtual int depth() const = 0;

  // Puts a model's weights on the device. They are freed with the last handle, which any thread may
  // drop, but before the device is destroyed. One thread at a time may load, also while the engine
  // thread launches.
  virtual absl::StatusOr<std::shared_ptr<encoder::Model>> LoadModel(const ModelSource& source) = 0;

  // Both copy the inputs in, compute, and copy the outputs back to the batch's output pointers. An
  // error that `control` returns at a checkpoint ends the launch and is returned unchanged; the
  // outputs are then unspecified. At a checkpoint the device accepts other launches. `control` is
  // not used after Launch returns.
  virtual absl::StatusOr<std::unique_ptr<Execution>> Launch(const AttentionBatch& batch,
                                                            RunControl& control) = 0;
  virtual absl::StatusOr<std::unique_ptr<Execution>> Launch(const encoder::Batch& batch,
                                                            RunControl& control) = 0;
};

// Opens the device that EngineOptions::device names. "auto" uses the CPU only if there is no NVIDIA
// driver or no GPU: one that is present but does not work is an error. Called on the engine thread.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const EngineOptions& options);

// The places of the CUDA side, libcastor_cuda.so, which is loaded when it is first needed: a server
// on the CPU neither loads nor ships it. Tests set other places.
struct CudaPlaces {
  std::string driver = "libcuda.so.1";
  std::string module;  // empty: libcastor_cuda.so in the folder of libcastor_engine.so
  std::string device_nodes = "/dev";
};
absl::StatusOr<std::unique_ptr<Device>> OpenDeviceAt(const EngineOptions& options,
                                                     const CudaPlaces& places);

// KERNEL_NOT_AVAILABLE, with the cause, if there is no NVIDIA driver, no such device, or neither a
// module nor a GPU. Any other error means that something is present but does not work: a GPU
// without a module, a module that does not load, a driver that is too old, a device that is not
// ready. Called on the engine thread. Once loaded, the module stays for the life of the process,
// since pinned memory is freed through it.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const EngineOptions& options,
                                                       const CudaPlaces& places = {});

// True if the system has a GPU's device node, such as /dev/nvidia0 or /dev/dxg.
bool HasGpuNode(const std::string& device_nodes);

}  // namespace castor
