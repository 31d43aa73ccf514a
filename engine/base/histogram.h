// A lock-free histogram that any thread may write and read.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace castor {

// A reader's copy: `counts` has one entry per bound, plus one for values above the last bound.
// Bounds are inclusive upper edges, ascending; counts are not cumulative.
struct HistogramSnapshot {
  std::vector<double> bounds;
  std::vector<uint64_t> counts;
  double sum = 0;

  uint64_t count() const {
    uint64_t total = 0;
    for (uint64_t bucket : counts) total += bucket;
    return total;
  }
};

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}

  // Any thread. Drops negative values, and NaN, which would make the sum NaN.
  void Observe(double value) {
    if (!(value >= 0)) return;
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  HistogramSnapshot Snapshot() const {
    HistogramSnapshot snapshot{bounds_, {}, sum_.load(std::memory_order_relaxed)};
    for (const auto& count : counts_) {
      snapshot.counts.push_back(count.load(std::memory_order_relaxed));
    }
    return snapshot;
  }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_ = 0;
};

}  // namespace castor
