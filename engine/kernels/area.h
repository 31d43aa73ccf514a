// One block of memory, handed out as arrays. Without a block it only adds up their sizes, so one
// function both measures and divides the block. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kernels/count.h"

namespace castor::kernels {

class Area {
 public:
  // Arrays begin at multiples of the alignment, as `base` does.
  Area(void* base, int64_t alignment)
      : base_(static_cast<std::byte*>(base)), alignment_(alignment) {}

  // Points `array` to `count` elements; leaves it if there are none, or no block.
  template <typename T>
  void Allocate(T*& array, Count count) {
    if (base_ != nullptr && count > 0) array = reinterpret_cast<T*>(base_ + bytes_.value());
    bytes_ += (count * static_cast<int64_t>(sizeof(T))).RoundedUp(alignment_);
  }

  Count bytes() const { return bytes_; }  // of all arrays: Count::kMost if they cannot be counted

 private:
  std::byte* const base_;
  const int64_t alignment_;
  Count bytes_ = 0;
};

}  // namespace castor::kernels
