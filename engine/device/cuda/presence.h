// Whether CUDA's refusal means that there is no GPU, or that one is there and does not work. Pure,
// and free of CUDA's headers.
#pragma once

namespace castor {

// What is known when cudaGetDeviceCount refuses, or finds no device.
struct CudaRefusal {
  int error = 0;             // a cudaError_t
  int driver_version = 0;    // as cudaDriverGetVersion has it; 0: no driver is loaded
  bool device_node = false;  // the system has a node such as /dev/nvidia0
  bool restricted = false;   // CUDA_VISIBLE_DEVICES is set: whoever set it may have hidden it
};

// True where there is no driver or no device. False: a driver that is too old, a GPU that is not
// ready, one that is split (MIG) and of which nothing was handed out, and all that is unknown.
bool NoGpu(const CudaRefusal& refusal);

}  // namespace castor
