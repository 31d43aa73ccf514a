// Elements of the types that kernels take, made from float and read as double.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "engine/kernels/element.h"

namespace castor::kernels {

// An array of float32 or bfloat16.
class ElementArray {
 public:
  ElementArray(Element element, int64_t count) : element_(element), bytes_(count * Size()) {}

  // `element` must be float32 or bfloat16. Values are normal, with this deviation.
  static ElementArray Random(Element element, int64_t count, double deviation,
                             std::mt19937& random) {
    ElementArray out(element, count);
    std::normal_distribution<float> normal(0, static_cast<float>(deviation));
    for (int64_t i = 0; i < count; ++i) out.Set(i, normal(random));
    return out;
  }

  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  const void* at(int64_t i) const { return bytes_.data() + i * Size(); }

  double operator[](int64_t i) const {
    if (element_ == Element::kFloat32) return Read<float>(i);
    return std::bit_cast<float>(uint32_t{Read<uint16_t>(i)} << 16);
  }

  void Set(int64_t i, float x) {
    if (element_ == Element::kFloat32) return Write(i, x);
    Write(i, static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
  }

  bool operator==(const ElementArray& other) const = default;

 private:
  int64_t Size() const { return element_ == Element::kFloat32 ? 4 : 2; }
  template <typename T>
  T Read(int64_t i) const {
    T x;
    std::memcpy(&x, bytes_.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return x;
  }
  template <typename T>
  void Write(int64_t i, T x) {
    std::memcpy(bytes_.data() + i * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
  }

  Element element_;
  std::vector<unsigned char> bytes_;
};

// The relative error of rounding to the type.
inline double Rounding(Element element) { return element == Element::kFloat32 ? 0x1p-24 : 0x1p-8; }

}  // namespace castor::kernels
