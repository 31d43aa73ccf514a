// Elements of any dtype, written and read one by one by the definitions of the formats: slow, and
// independent of the conversions under test.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/base/dtype.h"

namespace castor::attention {

// The dtypes that attention computes in.
inline constexpr DType kFloatTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// The nearest float16 and bfloat16, ties to even, straight from the definitions of the formats.
inline uint16_t NearestHalf(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7e00;
  const double magnitude = std::abs(x);
  if (magnitude >= 65520) return sign | 0x7c00;
  int exponent;
  std::frexp(magnitude, &exponent);                // magnitude < 2^exponent
  const int place = std::max(exponent - 11, -24);  // of the last bit
  const double units = std::nearbyint(std::ldexp(magnitude, -place));
  const double rounded = std::ldexp(units, place);
  if (rounded < 0x1p-14) return sign | static_cast<uint16_t>(std::ldexp(rounded, 24));
  std::frexp(rounded, &exponent);
  const auto fraction = static_cast<uint16_t>(std::ldexp(rounded, 11 - exponent));  // 1024..2047
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) | (fraction - 1024));
}

inline uint16_t NearestBrain(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  const uint32_t below = bits & 0xffff;
  const uint32_t up = below > 0x8000 || (below == 0x8000 && (bits & 0x10000) != 0);
  return static_cast<uint16_t>((bits >> 16) + up);
}

inline void SetElement(std::byte* data, DType dtype, int64_t index, double x) {
  if (dtype == DType::kFloat32) {
    const auto element = static_cast<float>(x);
    std::memcpy(data + 4 * index, &element, 4);
    return;
  }
  const uint16_t bits =
      dtype == DType::kFloat16 ? NearestHalf(x) : NearestBrain(static_cast<float>(x));
  std::memcpy(data + 2 * index, &bits, 2);
}

inline double GetElement(const std::byte* data, DType dtype, int64_t index) {
  if (dtype == DType::kFloat32) {
    float element;
    std::memcpy(&element, data + 4 * index, 4);
    return element;
  }
  uint16_t bits;
  std::memcpy(&bits, data + 2 * index, 2);
  if (dtype == DType::kBFloat16) return std::bit_cast<float>(uint32_t{bits} << 16);
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) magnitude = fraction == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Elements that own their memory, zero at first.
class Elements {
 public:
  Elements(DType dtype, int64_t count) : dtype_(dtype), bytes_(count * SizeOf(dtype)) {}

  void Set(int64_t index, double x) { SetElement(bytes_.data(), dtype_, index, x); }
  double Get(int64_t index) const { return GetElement(bytes_.data(), dtype_, index); }

  // Sets all bits: a NaN in every dtype, so that an element that nobody writes is noticed.
  void Clear() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff}); }

  int64_t size() const { return static_cast<int64_t>(bytes_.size() / SizeOf(dtype_)); }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

}  // namespace castor::attention
