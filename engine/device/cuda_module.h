// Opens the CUDA device through libcastor_cuda.so, which is loaded when it is first needed: a
// server on the CPU neither loads nor ships it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace castor {

// Where to look for the CUDA side; tests set other places.
struct CudaPlaces {
  std::string driver = "libcuda.so.1";
  std::string module;  // empty: libcastor_cuda.so beside libcastor_engine.so
  std::string device_nodes = "/dev";
};

// KERNEL_NOT_AVAILABLE, with the cause, if there is no NVIDIA driver, no such device, or neither a
// module nor a GPU. Any other error means that something is present but does not work: a GPU
// without a module, a module that does not load, a driver that is too old, a device that is not
// ready. Called on the engine thread. Once loaded, the module stays for the life of the process,
// since pinned memory is freed through it.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const EngineOptions& options,
                                                       const CudaPlaces& places = {});

// Whether the system has a GPU's device node, such as /dev/nvidia0 or /dev/dxg.
bool HasGpuNode(const std::string& device_nodes);

}  // namespace castor
