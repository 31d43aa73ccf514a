// Rows of float32, float16 and bfloat16 in and out of vectors. Everything is a template over the
// vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/element.h"

namespace castor::kernels {

struct Float32 {
  using Bits = float;
};
struct Float16 {
  using Bits = uint16_t;
};
struct BFloat16 {
  using Bits = uint16_t;
};

// f(E{}) with the type of the elements. V: for whose vectors f is.
template <typename V, typename F>
auto ForElement(Element element, F f) {
  switch (element) {
    case Element::kFloat32:
      break;
    case Element::kFloat16:
      return f(Float16{});
    case Element::kBFloat16:
      return f(BFloat16{});
  }
  return f(Float32{});
}

template <typename V, typename E>
struct Elements;

// The common part of all three: `Self` provides LoadVector, ToFloat, StoreVector and FromFloat.
template <typename V, typename E, typename Self>
struct ElementRows {
  using Vec = typename V::Vec;
  using Bits = typename E::Bits;

  // The first `count` <= lanes elements, zeros after them.
  static Vec Load(const Bits* p, int64_t count) {
    if (count == V::kLanes) return Self::LoadVector(p);
    float lanes[V::kLanes] = {};
    for (int64_t i = 0; i < count; ++i) lanes[i] = Self::ToFloat(p[i]);
    return V::Load(lanes);
  }

  static void Store(Bits* p, Vec x, int64_t count) {
    if (count == V::kLanes) return Self::StoreVector(p, x);
    float lanes[V::kLanes];
    V::Store(lanes, x);
    for (int64_t i = 0; i < count; ++i) p[i] = Self::FromFloat(lanes[i]);
  }
};

template <typename V>
struct Elements<V, Float32> : ElementRows<V, Float32, Elements<V, Float32>> {
  static typename V::Vec LoadVector(const float* p) { return V::Load(p); }
  static void StoreVector(float* p, typename V::Vec x) { V::Store(p, x); }
  static float ToFloat(float x) { return x; }
  static float FromFloat(float x) { return x; }
};

template <typename V>
struct Elements<V, Float16> : ElementRows<V, Float16, Elements<V, Float16>> {
  static typename V::Vec LoadVector(const uint16_t* p) { return V::LoadHalf(p); }
  static void StoreVector(uint16_t* p, typename V::Vec x) { V::StoreHalf(p, x); }
  static float ToFloat(uint16_t bits) { return V::HalfToFloat(bits); }
  static uint16_t FromFloat(float x) { return V::FloatToHalf(x); }
};

template <typename V>
struct Elements<V, BFloat16> : ElementRows<V, BFloat16, Elements<V, BFloat16>> {
  static typename V::Vec LoadVector(const uint16_t* p) { return V::LoadBFloat16(p); }
  static void StoreVector(uint16_t* p, typename V::Vec x) { V::StoreBFloat16(p, x); }
  static float ToFloat(uint16_t bits) { return __builtin_bit_cast(float, uint32_t{bits} << 16); }

  // Rounds to nearest, ties to even.
  static uint16_t FromFloat(float x) {
    const auto word = __builtin_bit_cast(uint32_t, x);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((word >> 16) | 0x40u);
    return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
};

}  // namespace castor::kernels
