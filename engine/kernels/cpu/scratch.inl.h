// The memory a kernel works in: one area, handed out part after part. A template over the vector
// type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

namespace castor::kernels {

// Hands out parts of an area or, without one, only counts what they take. Parts are aligned as the
// area is, to 64 bytes.
template <typename V>
struct ScratchArea {
  explicit ScratchArea(float* base) : base(base) {}

  float* Take(int64_t count) {
    float* const taken = base == nullptr ? nullptr : base + floats;
    floats += (count + 15) / 16 * 16;
    return taken;
  }

  float* base;
  int64_t floats = 0;
};

}  // namespace castor::kernels
