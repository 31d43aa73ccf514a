#include "engine/device/cuda/pinned.h"

#include <cuda_runtime_api.h>

#include <atomic>

namespace castor {
namespace {

// Threads that never used CUDA default to device 0; allocating there would open a context on it.
std::atomic<int> g_device{0};

std::byte* Allocate(size_t size) {
  void* data = nullptr;
  if (cudaSetDevice(g_device.load(std::memory_order_relaxed)) != cudaSuccess ||
      cudaHostAlloc(&data, size, cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();  // the caller reports it; later calls must not see it
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void Free(std::byte* data, size_t) {
  // Fails only at process exit, when the driver is already gone and the memory with it.
  cudaFreeHost(data);
}

}  // namespace

HostMemorySource PinnedMemory(int index) {
  g_device.store(index, std::memory_order_relaxed);
  return {Allocate, Free};
}

}  // namespace castor
