#include "engine/device/cuda_module.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "engine/base/error.h"

namespace castor {
namespace {

// engine/device/cuda/module.cc defines it.
using OpenFn = void (*)(int index, const EngineOptions* options, std::unique_ptr<Device>* out,
                        absl::Status* status);

absl::Status Unavailable(const std::string& cause) {
  return MakeError(Reason::kKernelNotAvailable, cause);
}

std::string LastLoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "unknown loader error" : error;
}

// Asked first, because the module brings the tensor library's CUDA part, which takes a second to
// load and is of no use without a driver.
bool DriverIsInstalled() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

// The folder of the library that this code is in.
absl::StatusOr<std::filesystem::path> OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&OpenCudaDevice), &info) == 0) {
    return Unavailable("the engine cannot find its own library's folder");
  }
  return std::filesystem::path(info.dli_fname).parent_path();
}

absl::StatusOr<OpenFn> LoadModule() {
  if (!DriverIsInstalled()) return Unavailable("no NVIDIA driver: libcuda.so.1 is not installed");
  const absl::StatusOr<std::filesystem::path> folder = OwnFolder();
  if (!folder.ok()) return folder.status();
  const std::string path = *folder / "libcastor_cuda.so";
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return Unavailable("no CUDA module: " + LastLoaderError());
  void* symbol = dlsym(module, "castor_open_cuda_device");
  if (symbol == nullptr) return Unavailable("not a CUDA module: " + LastLoaderError());
  return reinterpret_cast<OpenFn>(symbol);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const EngineOptions& options) {
  const absl::StatusOr<OpenFn> open = LoadModule();
  if (!open.ok()) return open.status();
  std::unique_ptr<Device> device;
  absl::Status status;
  (*open)(index, &options, &device, &status);
  if (!status.ok()) return status;
  return device;
}

}  // namespace castor
