#include "engine/base/host_memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/base/config.h"
#include "engine/base/error.h"
#include "engine/base/mutex.h"

#ifdef ABSL_HAVE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace castor {
namespace {

constexpr size_t kAlignment = 64;

// Four classes per power of two: at most 25% of a buffer is slack.
size_t SizeClass(size_t size) {
  if (size <= 4 * kAlignment) return 4 * kAlignment;
  const size_t step = std::bit_floor(size - 1) / 4;
  return (size + step - 1) / step * step;
}

// Tells AddressSanitizer that only the first `usable` bytes of a block may be touched: to it, a
// block in the pool is allocated like any other.
void Fence([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t usable,
           [[maybe_unused]] size_t capacity) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(data, usable);
  ASAN_POISON_MEMORY_REGION(data + usable, capacity - usable);
#endif
}

class CachingHostPool : public HostPool {
 public:
  CachingHostPool(HostMemorySource source, int64_t max_cached_bytes)
      : source_(source), max_cached_bytes_(max_cached_bytes) {}

  ~CachingHostPool() override {
    for (auto& [capacity, blocks] : free_) {
      for (std::byte* block : blocks) Release(block, capacity);
    }
  }

  absl::StatusOr<HostBuffer> Allocate(size_t size) override {
    if (size == 0) return HostBuffer();
    const size_t capacity = SizeClass(size);
    std::byte* data = TakeCached(capacity);
    if (data == nullptr) data = source_.allocate(capacity);
    if (data == nullptr) {
      return MakeError(Reason::kOutOfMemory,
                       "no host memory for " + std::to_string(size) + " bytes");
    }
    Fence(data, size, capacity);
    MutexLock lock(mu_);
    stats_.in_use_bytes += static_cast<int64_t>(capacity);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
    return HostBuffer(data, size, capacity, shared_from_this());
  }

  HostPoolStats stats() const override {
    MutexLock lock(mu_);
    return stats_;
  }

 private:
  std::byte* TakeCached(size_t capacity) {
    MutexLock lock(mu_);
    const auto found = free_.find(capacity);
    if (found == free_.end() || found->second.empty()) return nullptr;
    std::byte* data = found->second.back();
    found->second.pop_back();
    stats_.cached_bytes -= static_cast<int64_t>(capacity);
    return data;
  }

  void Free(std::byte* data, size_t capacity) override {
    Fence(data, 0, capacity);
    {
      MutexLock lock(mu_);
      stats_.in_use_bytes -= static_cast<int64_t>(capacity);
      if (stats_.cached_bytes + static_cast<int64_t>(capacity) <= max_cached_bytes_) {
        stats_.cached_bytes += static_cast<int64_t>(capacity);
        free_[capacity].push_back(data);
        return;
      }
    }
    Release(data, capacity);  // outside the lock: it can take long
  }

  void Release(std::byte* data, size_t capacity) {
    Fence(data, capacity, capacity);
    source_.free(data, capacity);
  }

  const HostMemorySource source_;
  const int64_t max_cached_bytes_;

  mutable Mutex mu_;
  HostPoolStats stats_ ABSL_GUARDED_BY(mu_);
  std::map<size_t, std::vector<std::byte*>> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) pool_->Free(data_, capacity_);
}

std::shared_ptr<HostPool> MakeHostPool(HostMemorySource source, int64_t max_cached_bytes) {
  return std::make_shared<CachingHostPool>(source, max_cached_bytes);
}

HostMemorySource SystemMemory() {
  return {[](size_t size) {
            return static_cast<std::byte*>(
                std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment));
          },
          [](std::byte* data, size_t) { std::free(data); }};
}

}  // namespace castor
