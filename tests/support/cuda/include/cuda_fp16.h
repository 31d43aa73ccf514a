// CUDA's float16 for tests without CUDA: conversions from the definition of the format, to nearest
// even; see ../emulator.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "vector_types.h"

struct __half {
  uint16_t bits = 0;
};
struct alignas(4) __half2 {
  __half x, y;
};

inline float __half2float(__half h) {
  const uint32_t magnitude = h.bits & 0x7fff;
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000) << 16;
  // Shift the bits to float32's position and scale by 2^112, which handles subnormals too.
  uint32_t bits = magnitude << 13;
  if (magnitude >= 0x7c00) {
    bits |= 0x7f800000;
  } else {
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) * 0x1p112f);
  }
  return std::bit_cast<float>(bits | sign);
}

inline __half __float2half_rn(float x) {
  const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16 & 0x8000);
  const float magnitude = std::fabs(x);
  uint16_t bits;
  if (std::isnan(x)) {
    bits = 0x7fff;
  } else if (magnitude >= 65520) {
    bits = 0x7c00;
  } else if (magnitude < 0x1p-14f) {
    bits = static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  } else {
    uint32_t scaled = std::bit_cast<uint32_t>(magnitude * 0x1p-112f);
    scaled += 0xfff + (scaled >> 13 & 1);
    bits = static_cast<uint16_t>(scaled >> 13);
  }
  return {static_cast<uint16_t>(sign | bits)};
}

inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
