#include "engine/device/device.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/machine.h"
#include "engine/base/threads.h"
#include "engine/device/cpu_device.h"
#include "engine/device/cuda_module.h"

namespace castor {
namespace {

// 0 for "cuda", N for "cuda:N", nullopt for any other name.
std::optional<int> CudaIndex(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  if (!name.starts_with(kCuda)) return std::nullopt;
  name.remove_prefix(kCuda.size());
  if (name.empty()) return 0;
  if (!name.starts_with(':')) return std::nullopt;
  name.remove_prefix(1);
  int index;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCpu(const EngineOptions& options,
                                                const std::string& note) {
  const int threads = options.cpu_threads > 0 ? options.cpu_threads : AvailableProcessors();
  // Our team, or LibTorch's two where it computes. If a thread cannot be started, it hangs with one
  // of its teams, and ends the process with the other.
  if (absl::Status room = CheckThreads(2 * (threads - 1)); !room.ok()) return room;
  return CpuDevice::Open(options, note);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const EngineOptions& options) {
  return OpenDeviceAt(options, CudaPlaces());
}

absl::StatusOr<std::unique_ptr<Device>> OpenDeviceAt(const EngineOptions& options,
                                                     const CudaPlaces& places) {
  if (options.device == "cpu") return OpenCpu(options, "");
  if (options.device == "auto") {
    absl::StatusOr<std::unique_ptr<Device>> cuda = OpenCudaDevice(0, options, places);
    if (cuda.ok()) return cuda;
    if (ReasonOf(cuda.status()) != Reason::kKernelNotAvailable) {
      return MakeError(Reason::kInternal,
                       "the GPU cannot be used: " + std::string(cuda.status().message()) +
                           " (device cpu serves without it)");
    }
    return OpenCpu(options, std::string(cuda.status().message()));
  }
  const std::optional<int> index = CudaIndex(options.device);
  if (!index) return InvalidField("device", "must be auto, cpu, cuda or cuda:N");
  return OpenCudaDevice(*index, options, places);
}

}  // namespace castor
