#include "engine/device/cuda/cuda_device.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "engine/attention/cuda/variants_cuda.h"
#include "engine/base/error.h"
#include "engine/base/machine.h"
#include "engine/device/cuda/pinned.h"
#include "engine/device/cuda/presence.h"
#include "engine/device/device.h"
#include "engine/encoder/directory/load.h"
#include "engine/encoder/model.h"

namespace castor {
namespace {

using c10::cuda::CUDACachingAllocator::getDeviceStats;
using c10::cuda::CUDACachingAllocator::resetPeakStats;

constexpr int kMinComputeCapability = 80;
constexpr size_t kAggregate = 0;  // of the allocator's statistics: small and large blocks together

// presence.cc repeats these values.
static_assert(cudaSuccess == 0 && cudaErrorStubLibrary == 34);
static_assert(cudaErrorInsufficientDriver == 35 && cudaErrorNoDevice == 100);

// There is no such device: the only error after which "auto" may use the CPU.
absl::Status Unavailable(const std::string& message) {
  return MakeError(Reason::kKernelNotAvailable, message);
}

// 13000 is "13.0".
std::string CudaVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string Backend() {
  int runtime = 0;
  int driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  return "LibTorch " TORCH_VERSION ", CUDA " + CudaVersion(runtime) + " (driver " +
         CudaVersion(driver) + ")";
}

int64_t AllocatedBytes(c10::DeviceIndex index) {
  return getDeviceStats(index).allocated_bytes[kAggregate].current;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(int index,
                                                             const EngineOptions& options) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    cudaGetLastError();
    const std::string cause =
        "CUDA cannot be used: " +
        std::string(cudaGetErrorString(counted == cudaSuccess ? cudaErrorNoDevice : counted));
    CudaRefusal refusal;
    refusal.error = counted;
    cudaDriverGetVersion(&refusal.driver_version);
    refusal.device_node = HasGpuNode("/dev");
    refusal.restricted = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
    return NoGpu(refusal) ? Unavailable(cause) : MakeError(Reason::kInternal, cause);
  }
  if (index < 0 || index >= count) {
    return Unavailable("there is no device cuda:" + std::to_string(index) + ", only " +
                       std::to_string(count) + " device(s)");
  }
  Faults opening([] { return true; });
  std::unique_ptr<CudaDevice> device;
  const absl::Status status = opening.Guard([&]() -> absl::Status {
    cudaDeviceProp properties{};
    absl::Status got = opening.FromCode(cudaGetDeviceProperties(&properties, index),
                                        "reading the device's properties");
    if (!got.ok()) return got;
    const int capability = properties.major * 10 + properties.minor;
    if (capability < kMinComputeCapability) {
      return MakeError(Reason::kInternal,
                       std::string(properties.name) + " has compute capability " +
                           std::to_string(properties.major) + "." +
                           std::to_string(properties.minor) + ", and Castor needs 8.0");
    }
    // Models are read and converted on the host.
    at::set_num_threads(options.cpu_threads > 0 ? options.cpu_threads : AvailableProcessors());
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    const at::Device torch_device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
    // Starts LibTorch's CUDA side, with the allocator and the context, while errors are cheap.
    at::empty({1}, at::TensorOptions().dtype(at::kFloat).device(torch_device));

    attention::cuda::SetCapabilities({capability, properties.multiProcessorCount});
    DeviceInfo info;
    info.name = "cuda:" + std::to_string(index);
    info.description = properties.name;
    info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    info.backend = Backend();
    device.reset(new CudaDevice(torch_device, std::move(info),
                                MakeHostPool(PinnedMemory(index), options.max_cached_host_bytes)));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return device;
}

CudaDevice::CudaDevice(at::Device device, DeviceInfo info, std::shared_ptr<HostPool> host_pool)
    : device_(device),
      info_(std::move(info)),
      host_pool_(std::move(host_pool)),
      streams_{c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()),
               c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()),
               c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())},
      faults_([compute = streams_.compute] {
        const cudaError_t error = cudaStreamQuery(compute);
        cudaGetLastError();
        return error == cudaSuccess || error == cudaErrorNotReady;
      }) {}

std::span<const attention::Variant> CudaDevice::variants() const {
  return attention::cuda::CudaVariants();
}

MemoryStats CudaDevice::memory() const {
  const auto stats = getDeviceStats(device_.index());
  MemoryStats memory;
  memory.device_allocated_bytes = stats.allocated_bytes[kAggregate].current;
  memory.device_reserved_bytes = stats.reserved_bytes[kAggregate].current;
  memory.device_split_bytes = stats.inactive_split_bytes[kAggregate].current;
  // The allocator's own peak is reset at every launch, to measure the launch.
  memory.device_peak_bytes =
      std::max(peak_bytes_.load(std::memory_order_relaxed), stats.allocated_bytes[kAggregate].peak);
  return memory;
}

absl::StatusOr<std::shared_ptr<encoder::Model>> CudaDevice::LoadModel(const ModelSource& source) {
  std::shared_ptr<encoder::Model> model;
  const absl::Status status = faults_.Guard([&]() -> absl::Status {
    const c10::InferenceMode inference;
    const c10::cuda::CUDAStreamGuard guard(streams_.compute);
    absl::StatusOr<std::shared_ptr<encoder::Model>> loaded = encoder::LoadModel(
        source, device_,
        [this](const attention::Spec& spec, const attention::Problem& problem,
               RunControl& control) { return RunAttention(spec, problem, control); });
    if (!loaded.ok()) return loaded.status();
    absl::Status served =
        encoder::CheckServed((*loaded)->attention(Vanilla{}), source.name, variants());
    if (!served.ok()) return served;
    model = *std::move(loaded);
    streams_.compute.synchronize();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return model;
}

absl::Status CudaDevice::RunAttention(const attention::Spec& spec,
                                      const attention::Problem& problem, RunControl& control) {
  const attention::Variant* variant = attention::FindVariant(variants(), spec);
  if (variant == nullptr) {
    return MakeError(Reason::kKernelNotAvailable, "no kernel on this device runs this attention");
  }
  const absl::Status status = variant->run(spec, {&problem, 1}, control);
  encoder_backend_ = variant->backend;  // another model may have run at the checkpoint
  return status;
}

int64_t CudaDevice::NotePeak() {
  const int64_t peak = getDeviceStats(device_.index()).allocated_bytes[kAggregate].peak;
  launch_peak_ = std::max(launch_peak_, peak);
  peak_bytes_.store(std::max(peak_bytes_.load(std::memory_order_relaxed), peak),
                    std::memory_order_relaxed);
  return launch_peak_;
}

template <typename Launcher>
absl::StatusOr<std::unique_ptr<Execution>> CudaDevice::RunLaunch(Launcher&& launch) {
  // Held outside the guard: if the launch throws, the execution's destructor waits for what was
  // already queued before the batch's staging memory can be reused.
  auto execution = std::make_unique<CudaExecution>(streams_, faults_);
  const absl::Status status = faults_.Guard([&]() -> absl::Status {
    const c10::InferenceMode inference;
    const c10::cuda::CUDAStreamGuard guard(streams_.compute);
    const c10::DeviceIndex index = device_.index();
    // The allocator keeps its accounts on the host: they are exact before the device has run. At a
    // checkpoint of another launch, that one's peak must outlast the reset.
    const int64_t outer_peak = NotePeak();
    resetPeakStats(index);
    launch_peak_ = 0;
    const int64_t before = AllocatedBytes(index);
    absl::Status launched = launch(*execution);
    execution->times().workspace_bytes = NotePeak() - before;
    launch_peak_ = outer_peak;
    return launched;
  });
  if (!status.ok()) return status;
  return std::unique_ptr<Execution>(std::move(execution));
}

absl::StatusOr<std::unique_ptr<Execution>> CudaDevice::Launch(const AttentionBatch& batch,
                                                              RunControl& control) {
  if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  return RunLaunch(
      [&](CudaExecution& execution) { return LaunchAttention(batch, execution, control); });
}

absl::StatusOr<std::unique_ptr<Execution>> CudaDevice::Launch(const encoder::Batch& batch,
                                                              RunControl& control) {
  if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  return RunLaunch(
      [&](CudaExecution& execution) { return LaunchEncoder(batch, execution, control); });
}

}  // namespace castor
