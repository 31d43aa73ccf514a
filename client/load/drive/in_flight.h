// Requests in flight, of all lanes of a run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace castor::load {

// Thread-safe.
class InFlight {
 public:
  explicit InFlight(size_t classes) : by_class_(classes) {}

  // False when `most` are in flight already; 0: there is no bound.
  bool TryAdd(uint16_t cls, int64_t most) {
    if (all_.fetch_add(1, std::memory_order_relaxed) >= most && most > 0) {
      all_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    by_class_[cls].fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  void Remove(uint16_t cls) {
    by_class_[cls].fetch_sub(1, std::memory_order_relaxed);
    all_.fetch_sub(1, std::memory_order_relaxed);
  }

  int64_t all() const { return all_.load(std::memory_order_relaxed); }
  int64_t of(size_t cls) const { return by_class_[cls].load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> all_ = 0;
  std::vector<std::atomic<int64_t>> by_class_;
};

}  // namespace castor::load
