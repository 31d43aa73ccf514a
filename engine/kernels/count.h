// Counts of elements and bytes that cannot wrap, for arithmetic on numbers that a request brings.
//
// A sum or product that 63 bits do not hold is Count::kMost, and so is everything computed from it.
// It exceeds every budget, so comparing with a budget is the only check that is needed. Plain
// values; any thread. Always inlined: never a function in an object file (flash.inl.h says why that
// matters).
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace castor::kernels {

class Count {
 public:
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

  // A negative number must have wrapped, so it becomes kMost.
  [[gnu::always_inline]] constexpr Count(int64_t count)  // NOLINT: mixes with plain numbers
      : count_(count < 0 ? kMost : count) {}

  [[gnu::always_inline]] constexpr int64_t value() const { return count_; }

  [[gnu::always_inline]] friend constexpr Count operator+(Count a, Count b) {
    int64_t sum = 0;
    return __builtin_add_overflow(a.count_, b.count_, &sum) ? kMost : sum;
  }
  [[gnu::always_inline]] friend constexpr Count operator*(Count a, Count b) {
    int64_t product = 0;
    if (a.count_ == 0 || b.count_ == 0) return 0;
    if (a.count_ == kMost || b.count_ == kMost) return kMost;
    return __builtin_mul_overflow(a.count_, b.count_, &product) ? kMost : product;
  }
  [[gnu::always_inline]] constexpr Count& operator+=(Count other) { return *this = *this + other; }

  [[gnu::always_inline]] friend constexpr bool operator==(Count a, Count b) {
    return a.count_ == b.count_;
  }
  [[gnu::always_inline]] friend constexpr std::strong_ordering operator<=>(Count a, Count b) {
    return a.count_ <=> b.count_;
  }

  // The number of units that hold the count; unit > 0.
  [[gnu::always_inline]] constexpr Count Units(int64_t unit) const {
    if (count_ == kMost) return kMost;
    return count_ / unit + (count_ % unit != 0 ? 1 : 0);
  }
  // The least multiple of the unit that holds the count.
  [[gnu::always_inline]] constexpr Count RoundedUp(int64_t unit) const {
    return Units(unit) * unit;
  }

 private:
  int64_t count_;
};

}  // namespace castor::kernels
