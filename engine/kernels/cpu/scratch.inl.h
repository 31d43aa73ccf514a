// A kernel's scratch memory: one area, handed out in parts. A template over the vector type, for
// the reason given in flash.inl.h.
#pragma once

#include "engine/kernels/count.h"

namespace castor::kernels {

// Hands out parts of an area; without one, only adds up their sizes (Count::kMost if they
// overflow). Parts are aligned as the area is, to 64 bytes.
template <typename V>
struct ScratchArea {
  explicit ScratchArea(float* base) : base(base) {}

  float* Allocate(Count count) {
    float* const allocated = base == nullptr ? nullptr : base + floats.value();
    floats += count.RoundedUp(16);
    return allocated;
  }

  float* base;
  Count floats = 0;
};

}  // namespace castor::kernels
