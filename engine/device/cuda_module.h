// Opens the CUDA device through libcastor_cuda.so, which is loaded when it is first needed: a
// server on the CPU neither loads nor ships it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace castor {

// KERNEL_NOT_AVAILABLE, with the cause, where there is no NVIDIA driver, no module beside
// libcastor_engine.so, or no such device. Called on the engine thread. Once loaded, the module
// stays for the life of the process, since pinned memory is freed through it.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index, const EngineOptions& options);

}  // namespace castor
