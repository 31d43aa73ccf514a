// Tells a machine without a GPU from one whose GPU does not work, by CUDA's error.
// Pure, and free of CUDA's headers.
#pragma once

namespace castor {

// The facts that explain why cudaGetDeviceCount failed or found no device.
struct CudaRefusal {
  int error = 0;             // a cudaError_t
  int driver_version = 0;    // from cudaDriverGetVersion; 0: no driver is loaded
  bool device_node = false;  // the system has a node such as /dev/nvidia0
  bool restricted = false;   // CUDA_VISIBLE_DEVICES is set and may hide the device
};

// True if there is no driver or no device. False for a driver that is too old, a GPU that is not
// ready, a GPU split by MIG with no instance assigned, and unknown errors.
bool NoGpu(const CudaRefusal& refusal);

}  // namespace castor
