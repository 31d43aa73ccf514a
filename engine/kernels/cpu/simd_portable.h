// Vectors of four floats in plain C++, see simd_avx2.h: for processors without a variant of their
// own. Compilers turn the loops into whatever instructions the target's baseline has.
#pragma once

#include <bit>
#include <cstdint>

namespace castor::kernels {

struct Portable {
  static constexpr int kLanes = 4;
  static constexpr int kRows[4] = {0, 8, 4, 3};
  struct Vec {
    float lane[kLanes];
  };

  template <typename F>
  static Vec Make(F f) {
    Vec out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = f(i);
    return out;
  }

  static Vec Zero() { return Broadcast(0); }
  static Vec Broadcast(float x) {
    return Make([&](int) { return x; });
  }
  static Vec BroadcastFrom(const float* p) { return Broadcast(*p); }
  static Vec Load(const float* p) {
    return Make([&](int i) { return p[i]; });
  }
  static void Store(float* p, Vec x) {
    for (int i = 0; i < kLanes; ++i) p[i] = x.lane[i];
  }
  static Vec Add(Vec a, Vec b) {
    return Make([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static Vec Subtract(Vec a, Vec b) {
    return Make([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static Vec Multiply(Vec a, Vec b) {
    return Make([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static Vec Divide(Vec a, Vec b) {
    return Make([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static Vec MultiplyAdd(Vec a, Vec b, Vec c) {
    return Make([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  static Vec Max(Vec a, Vec b) {
    return Make([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Vec Min(Vec a, Vec b) {
    return Make([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Vec ZeroBelow(Vec x, Vec of, Vec least) {
    return Make([&](int i) { return of.lane[i] < least.lane[i] ? 0.0f : x.lane[i]; });
  }
  static Vec PowerOfTwo(Vec x) {
    return Make(
        [&](int i) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x.lane[i]) << 23); });
  }

  static Vec LoadHalf(const uint16_t* p) {
    return Make([&](int i) { return HalfToFloat(p[i]); });
  }
  static Vec LoadBrain(const uint16_t* p) {
    return Make([&](int i) { return std::bit_cast<float>(uint32_t{p[i]} << 16); });
  }

  static void StoreHalf(uint16_t* p, Vec x) {
    for (int i = 0; i < kLanes; ++i) p[i] = FloatToHalf(x.lane[i]);
  }
  static float HalfToFloat(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
    // Read as a binary32, the same bits are too small by a factor of 2^112; the product is exact,
    // subnormals included.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
  }

  // To nearest, ties to even.
  static uint16_t FloatToHalf(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to Inf
    if (magnitude < 0x38800000u) {
      // Subnormal: adding 1/2 puts the result's last place at the sum's last place.
      const float sum = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }

  static void Transpose(Vec rows[kLanes]) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < i; ++j) {
        const float kept = rows[i].lane[j];
        rows[i].lane[j] = rows[j].lane[i];
        rows[j].lane[i] = kept;
      }
    }
  }
};

}  // namespace castor::kernels
