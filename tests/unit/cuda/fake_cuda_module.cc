// A CUDA module that finds no device, or a broken one.

#include <cstdlib>
#include <memory>

#include "engine/base/error.h"
#include "engine/device/device.h"

extern "C" __attribute__((visibility("default"))) void castor_open_cuda_device(
    int, const castor::EngineOptions*, std::unique_ptr<castor::Device>*, absl::Status* status) {
  *status = std::getenv("CASTOR_FAKE_CUDA_BROKEN") == nullptr
                ? castor::MakeError(castor::Reason::kKernelNotAvailable, "no device here")
                : castor::MakeError(castor::Reason::kInternal, "the device is on fire");
}
