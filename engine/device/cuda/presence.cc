#include "engine/device/cuda/presence.h"

namespace castor {
namespace {

// Values of cudaError_t; cuda_device.cc checks them.
constexpr int kSuccess = 0;
constexpr int kStubLibrary = 34;
constexpr int kInsufficientDriver = 35;
constexpr int kNoDevice = 100;

}  // namespace

bool NoGpu(const CudaRefusal& refusal) {
  switch (refusal.error) {
    case kStubLibrary:
      return true;
    case kInsufficientDriver:  // also when no driver is loaded
      return refusal.driver_version == 0;
    case kSuccess:
    case kNoDevice:
      return refusal.restricted || !refusal.device_node;
    default:
      return false;
  }
}

}  // namespace castor
