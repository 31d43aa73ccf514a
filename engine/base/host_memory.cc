#include "engine/base/host_memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include "absl/base/config.h"
#include "engine/base/error.h"
#include "engine/base/mutex.h"

#ifdef ABSL_HAVE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace castor {
namespace {

constexpr size_t kAlignment = 64;

// Four classes per power of two, so that at most 25 % of a block is unused.
size_t SizeClass(size_t size) {
  if (size <= 4 * kAlignment) return 4 * kAlignment;
  const size_t step = std::bit_floor(size - 1) / 4;
  return (size + step - 1) / step * step;
}

// More than any machine has; up to here the arithmetic of classes stays within size_t.
constexpr size_t kMaxBytes = size_t{1} << 62;
constexpr size_t kClasses = 4 * 64;

// The number of a class, less than kClasses.
size_t ClassIndex(size_t capacity) {
  const auto power = static_cast<size_t>(std::bit_width(capacity - 1));
  const size_t step = std::bit_floor(capacity - 1) / 4;
  return 4 * power + (capacity - 1) / step % 4;
}

// Tell AddressSanitizer that only the first or last `usable` bytes of a block may be accessed.
// Without this it would take a block in the pool for allocated memory.
void Fence([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t usable,
           [[maybe_unused]] size_t capacity) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(data, usable);
  ASAN_POISON_MEMORY_REGION(data + usable, capacity - usable);
#endif
}

void FenceButLast([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t usable,
                  [[maybe_unused]] size_t capacity) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  ASAN_POISON_MEMORY_REGION(data, capacity - usable);
  ASAN_UNPOISON_MEMORY_REGION(data + capacity - usable, usable);
#endif
}

// A block that waits for reuse. Its bookkeeping is stored in the block itself, at the end, so that
// returning memory allocates nothing and cannot fail. Each block is in two lists, that of all
// blocks and that of its class, both ordered from the most recently returned block to the oldest.
struct FreeBlock {
  struct Links {
    FreeBlock* newer = nullptr;
    FreeBlock* older = nullptr;
  };
  size_t capacity = 0;
  uint64_t round = 0;  // the round of ReleaseUnused in which it was returned
  Links all;
  Links in_class;

  static FreeBlock* MakeOf(std::byte* data, size_t capacity) {
    return new (data + capacity - sizeof(FreeBlock)) FreeBlock{capacity, 0, {}, {}};
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1) - capacity; }
};
static_assert(sizeof(FreeBlock) <= 4 * kAlignment && kAlignment % alignof(FreeBlock) == 0);

// One of the two lists.
template <FreeBlock::Links FreeBlock::*kLinks>
class FreeList {
 public:
  FreeBlock* newest() const { return newest_; }
  FreeBlock* oldest() const { return oldest_; }

  void AddNewest(FreeBlock* block) {
    block->*kLinks = {nullptr, newest_};
    (newest_ != nullptr ? (newest_->*kLinks).newer : oldest_) = block;
    newest_ = block;
  }

  void Remove(FreeBlock* block) {
    const auto [newer, older] = block->*kLinks;
    (newer != nullptr ? (newer->*kLinks).older : newest_) = older;
    (older != nullptr ? (older->*kLinks).newer : oldest_) = newer;
  }

 private:
  FreeBlock* newest_ = nullptr;
  FreeBlock* oldest_ = nullptr;
};

class CachingHostPool : public HostPool {
 public:
  CachingHostPool(HostMemorySource source, int64_t max_cached_bytes)
      : source_(source), max_cached_bytes_(max_cached_bytes) {}

  ~CachingHostPool() override { ReleaseAll(EvictAllBut(0)); }

  absl::StatusOr<HostBuffer> Allocate(size_t size) override {
    if (size == 0) return HostBuffer();
    if (size > kMaxBytes) return NoMemoryFor(size);
    const size_t capacity = SizeClass(size);
    std::byte* data = TakeCached(capacity);
    if (data == nullptr) data = source_.allocate(capacity);
    if (data == nullptr) {
      // The cached blocks of other sizes may be the memory that the system lacks.
      ReleaseAll(EvictAllBut(0));
      data = source_.allocate(capacity);
    }
    if (data == nullptr) return NoMemoryFor(size);
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

  void ReleaseUnused() override {
    FreeBlock* unused;
    {
      MutexLock lock(mu_);
      unused = EvictLocked(max_cached_bytes_, round_);
      ++round_;
    }
    ReleaseAll(unused);
  }

 private:
  using ClassList = FreeList<&FreeBlock::in_class>;

  static absl::Status NoMemoryFor(size_t size) {
    return MakeError(Reason::kOutOfMemory, "no host memory for " + std::to_string(size) + " bytes");
  }

  std::byte* TakeCached(size_t capacity) {
    MutexLock lock(mu_);
    // The most recently returned block is the most likely to be in a processor's cache.
    FreeBlock* const block = classes_[ClassIndex(capacity)].newest();
    if (block == nullptr) return nullptr;
    Forget(block);
    return block->data();
  }

  void Free(std::byte* data, size_t capacity) noexcept override {
    FenceButLast(data, sizeof(FreeBlock), capacity);
    FreeBlock* const block = FreeBlock::MakeOf(data, capacity);
    FreeBlock* evicted = block;
    {
      MutexLock lock(mu_);
      stats_.in_use_bytes -= static_cast<int64_t>(capacity);
      const auto bytes = static_cast<int64_t>(capacity);
      if (bytes <= max_cached_bytes_) {
        evicted = EvictLocked(max_cached_bytes_ - bytes, 0);
        stats_.cached_bytes += bytes;
        block->round = round_;
        all_.AddNewest(block);
        classes_[ClassIndex(capacity)].AddNewest(block);
      }
    }
    ReleaseAll(evicted);
  }

  FreeBlock* EvictAllBut(int64_t bytes) {
    MutexLock lock(mu_);
    return EvictLocked(bytes, 0);
  }

  // Takes the oldest blocks of any class out of the cache until it holds at most `bytes`, and none
  // from before `round`. The result is a chain by `all.older`.
  FreeBlock* EvictLocked(int64_t bytes, uint64_t round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    FreeBlock* evicted = nullptr;
    while (FreeBlock* const block = all_.oldest()) {
      if (stats_.cached_bytes <= bytes && block->round >= round) break;
      Forget(block);
      block->all.older = evicted;
      evicted = block;
    }
    return evicted;
  }

  void Forget(FreeBlock* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    all_.Remove(block);
    classes_[ClassIndex(block->capacity)].Remove(block);
    stats_.cached_bytes -= static_cast<int64_t>(block->capacity);
  }

  // To be called without the lock: the system may take long, and a driver longer.
  void ReleaseAll(FreeBlock* evicted) {
    while (evicted != nullptr) {
      FreeBlock* const block = std::exchange(evicted, evicted->all.older);
      std::byte* const data = block->data();
      const size_t capacity = block->capacity;
      Fence(data, capacity, capacity);
      source_.free(data, capacity);
    }
  }

  const HostMemorySource source_;
  const int64_t max_cached_bytes_;

  mutable Mutex mu_;
  HostPoolStats stats_ ABSL_GUARDED_BY(mu_);
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;
  FreeList<&FreeBlock::all> all_ ABSL_GUARDED_BY(mu_);
  std::array<ClassList, kClasses> classes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

HostBuffer::~HostBuffer() {
  if (pool_ != nullptr) pool_->Free(data_, capacity_);
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
