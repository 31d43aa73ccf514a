// GPU memory for tests, filled from host memory and read back.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace castor {

class DeviceMemory {
 public:
  // Copies `host`; if that is null, sets all bits, a NaN in every type, so that elements that no
  // kernel writes are noticed.
  DeviceMemory(const void* host, size_t bytes) : bytes_(bytes) {
    if (cudaMalloc(&data_, std::max<size_t>(bytes, 1)) != cudaSuccess) return;
    if (host != nullptr) {
      cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice);
    } else {
      Clear();
    }
  }
  template <typename T>
  explicit DeviceMemory(const std::vector<T>& host)
      : DeviceMemory(host.data(), host.size() * sizeof(T)) {}
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

  void Clear() const { cudaMemset(data_, 0xff, bytes_); }
  void Read(void* host) const { cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost); }
  template <typename T>
  std::vector<T> Read() const {
    std::vector<T> host(bytes_ / sizeof(T));
    Read(host.data());
    return host;
  }

 private:
  const size_t bytes_;
  void* data_ = nullptr;
};

// Reads `count` elements from device memory.
template <typename T>
std::vector<T> ReadDevice(const T* device, int64_t count) {
  std::vector<T> host(count);
  cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost);
  return host;
}

}  // namespace castor
