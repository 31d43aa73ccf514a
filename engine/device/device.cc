#include "engine/device/device.h"

#include <dlfcn.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/machine.h"
#include "engine/base/team.h"
#include "engine/device/cpu_device.h"

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

namespace {

// engine/device/cuda/module.cc defines it.
using OpenFn = void (*)(int index, const EngineOptions* options, std::unique_ptr<Device>* out,
                        absl::Status* status);

absl::Status NoGpu(const std::string& cause) {
  return MakeError(Reason::kKernelNotAvailable, cause);
}

absl::Status Broken(const std::string& cause) { return MakeError(Reason::kInternal, cause); }

std::string LastLoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "unknown loader error" : error;
}

// Checked first, because the module loads the tensor library's CUDA part, which takes a second and
// is useless without a driver.
absl::Status CheckDriver(const std::string& library) {
  void* driver = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) {
    dlclose(driver);
    return absl::OkStatus();
  }
  const std::string error = LastLoaderError();
  // The library itself is missing, not one that it needs.
  const bool absent =
      error.starts_with(library + ":") && error.find("No such file") != std::string::npos;
  if (absent) return NoGpu("no NVIDIA driver: " + library + " is not installed");
  return Broken("the NVIDIA driver does not load: " + error);
}

// The folder of the library that this code is in.
absl::StatusOr<std::filesystem::path> OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&OpenCudaDevice), &info) == 0) {
    return Broken("the engine cannot find its own library's folder");
  }
  return std::filesystem::path(info.dli_fname).parent_path();
}

absl::StatusOr<OpenFn> LoadModule(const CudaPlaces& places) {
  if (absl::Status driver = CheckDriver(places.driver); !driver.ok()) return driver;
  std::string path = places.module;
  if (path.empty()) {
    const absl::StatusOr<std::filesystem::path> folder = OwnFolder();
    if (!folder.ok()) return folder.status();
    path = *folder / "libcastor_cuda.so";
  }
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    const std::string cause = "this build has no CUDA module, " + path;
    return HasGpuNode(places.device_nodes) ? Broken(cause + ", and there is a GPU") : NoGpu(cause);
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return Broken("the CUDA module does not load: " + LastLoaderError());
  void* symbol = dlsym(module, "castor_open_cuda_device");
  if (symbol == nullptr) return Broken("not a CUDA module: " + LastLoaderError());
  return reinterpret_cast<OpenFn>(symbol);
}

}  // namespace

bool HasGpuNode(const std::string& device_nodes) {
  std::error_code error;
  for (const auto& node : std::filesystem::directory_iterator(device_nodes, error)) {
    const std::string name = node.path().filename();
    if (name == "dxg") return true;  // of the Windows subsystem for Linux
    if (name.starts_with("nvidia") && name.size() > 6 &&
        name.find_first_not_of("0123456789", 6) == std::string::npos) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const EngineOptions& options,
                                                       const CudaPlaces& places) {
  const absl::StatusOr<OpenFn> open = LoadModule(places);
  if (!open.ok()) return open.status();
  std::unique_ptr<Device> device;
  absl::Status status;
  (*open)(index, &options, &device, &status);
  if (!status.ok()) return status;
  return device;
}

}  // namespace castor
