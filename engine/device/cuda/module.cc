// The one symbol that the engine looks up in libcastor_cuda.so (engine/device/device.h).

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/device.h"

// Opens device `index`. Sets `*out` and an OK `*status`, or `*status` to the error, such as a
// missing driver or device. Called on the engine thread; throws nothing. The module stays loaded
// for the life of the process, since pinned buffers are freed through it.
extern "C" __attribute__((visibility("default"))) void castor_open_cuda_device(
    int index, const castor::EngineOptions* options, std::unique_ptr<castor::Device>* out,
    absl::Status* status) {
  absl::StatusOr<std::unique_ptr<castor::CudaDevice>> device =
      castor::CudaDevice::Open(index, *options);
  *status = device.status();
  if (device.ok()) *out = *std::move(device);
}
