// The memory a kernel works in: one area, handed out part after part. A template over the vector
// type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/count.h"

namespace castor::kernels {

// Hands out parts of an area or, without one, only counts what they take, which is Count::kMost if
// it cannot be counted. Parts are aligned as the area is, to 64 bytes.
template <typename V>
struct ScratchArea {
  explicit ScratchArea(float* base) : base(base) {}

  float* Take(Count count) {
    float* const taken = base == nullptr ? nullptr : base + floats.value();
    floats += count.RoundedUp(16);
    return taken;
  }

  float* base;
  Count floats = 0;
};

}  // namespace castor::kernels
