// Host memory in which requests are staged, and from which answers are read.
//
// Every buffer is 64-byte aligned. On a machine with a GPU the memory is pinned, so that copies to
// and from the device are asynchronous. The memory comes from a pool, because fresh pages cost more
// than the copy that fills them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace castor {

class HostPool;

// Owns one allocation of a pool and gives it back when destroyed, on any thread; or shares memory
// that no one changes any more, which need not be aligned like a pool's. Movable.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(std::byte* data, size_t size, size_t capacity, std::shared_ptr<HostPool> pool)
      : data_(data), size_(size), capacity_(capacity), pool_(std::move(pool)) {}
  HostBuffer(std::span<const std::byte> shared, std::shared_ptr<const void> owner)
      : data_(const_cast<std::byte*>(shared.data())),
        size_(shared.size()),
        owner_(std::move(owner)) {}
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(pool_, other.pool_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;  // the size of the pool's block, >= size_
  std::shared_ptr<HostPool> pool_;
  std::shared_ptr<const void> owner_;  // of shared memory, which is in no pool
};

struct HostPoolStats {
  int64_t in_use_bytes = 0;  // allocated
  int64_t cached_bytes = 0;  // free, kept for the next allocation
  int64_t peak_bytes = 0;    // the greatest in_use_bytes so far
};

// A thread-safe pool of aligned host memory in size classes. The cache is bounded: if there is no
// room for a returned block, the least recently used blocks of any size are released.
class HostPool : public std::enable_shared_from_this<HostPool> {
 public:
  virtual ~HostPool() = default;

  // OUT_OF_MEMORY if the system has none, even after the cache was returned to it. A size of 0
  // gives an empty buffer.
  virtual absl::StatusOr<HostBuffer> Allocate(size_t size) = 0;
  virtual HostPoolStats stats() const = 0;

  // Returns to the system the blocks that have been free since the call before the last. Waits for
  // the device if the memory is pinned.
  virtual void ReleaseUnused() = 0;

 private:
  friend class HostBuffer;
  virtual void Free(std::byte* data, size_t capacity) noexcept = 0;
};

// The source of a pool's memory: the system's allocator, or the CUDA driver's pinned memory.
struct HostMemorySource {
  std::byte* (*allocate)(size_t size);  // 64-byte aligned, or nullptr
  void (*free)(std::byte* data, size_t size);
};

// `max_cached_bytes` bounds the free memory that the pool keeps.
std::shared_ptr<HostPool> MakeHostPool(HostMemorySource source, int64_t max_cached_bytes);

// Ordinary pageable memory.
HostMemorySource SystemMemory();

}  // namespace castor
