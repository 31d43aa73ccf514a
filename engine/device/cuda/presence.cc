#include "engine/device/cuda/presence.h"

namespace castor {
namespace {

// Of cudaError_t; cuda_device.cc compares them.
constexpr int kSuccess = 0;
constexpr int kStubLibrary = 34;
constexpr int kInsufficientDriver = 35;
constexpr int kNoDevice = 100;

}  // namespace

bool NoGpu(const CudaRefusal& refusal) {
  switch (refusal.error) {
    case kStubLibrary:
      return true;
    case kInsufficientDriver:  // of none, too
      return refusal.driver_version == 0;
    case kSuccess:
    case kNoDevice:
      return refusal.restricted || !refusal.device_node;
    default:
      return false;
  }
}

}  // namespace castor
