// Activation functions on vectors, to a few units in the last place of 1. Everything is a template
// over the vector type, for the reason given in flash.inl.h.
#pragma once

#include "engine/kernels/cpu/attention/softmax.inl.h"
#include "engine/kernels/cpu/linear/linear.h"

namespace castor::kernels {

template <typename V>
struct Activations {
  using Vec = typename V::Vec;

  static Vec Apply(Activation activation, Vec x) {
    switch (activation) {
      case Activation::kNone:
        return x;
      case Activation::kGeluErf:
        return GeluErf(x);
      case Activation::kGeluTanh:
        return GeluTanh(x);
      case Activation::kQuickGelu:
        return x * Sigmoid(x * V::Broadcast(1.702f));
      case Activation::kRelu:
        return Relu(x);
      case Activation::kSilu:
        return x * Sigmoid(x);
      case Activation::kTanh:
        return Tanh<V>(x);
    }
    return x;
  }

 private:
  static Vec Negate(Vec x) { return V::Zero() - x; }
  static Vec Absolute(Vec x) { return V::Max(Negate(x), x); }

  // NaN stays NaN: Max returns its second operand then.
  static Vec Relu(Vec x) { return V::Max(V::Zero(), x); }

  // 1 / (1 + e^-x). The exponential's argument is never positive, so nothing overflows.
  static Vec Sigmoid(Vec x) {
    const Vec one = V::Broadcast(1.0f);
    const Vec small =  // e^-|x|
        Exp2<V>(Absolute(x) * V::Broadcast(static_cast<float>(-kLog2E)));
    const Vec lower = small / (one + small);  // of -|x|
    // 1 - lower where x >= 0.
    return lower + V::ZeroBelow(one - (lower + lower), x, V::Zero());
  }

  static Vec GeluTanh(Vec x) {
    constexpr float kTwiceRootTwoByPi = 1.5957691216057308f;
    const Vec cube = x * x * x;
    const Vec inner = V::MultiplyAdd(cube, V::Broadcast(0.044715f), x);
    return x * Sigmoid(inner * V::Broadcast(kTwiceRootTwoByPi));
  }

  // x / 2 (1 + erf(x / sqrt 2)). erf(z) / z is a polynomial in u = 1 - 2 (z / 3.6)^2, for |z| <=
  // 3.6; beyond, erf is taken for 1 or -1, which it is but for 4e-7. The polynomial is a fit at
  // Chebyshev's nodes, weighted by z: erf is right within 4e-7. Its even and its odd powers are
  // summed side by side, as a product's end waits for them.
  static Vec GeluErf(Vec x) {
    constexpr float kEnd = 3.6f * 1.41421356f;  // of x
    constexpr float kCoefficients[14] = {
        0x1.92232p-2f,  0x1.905d4cp-3f, 0x1.26868ap-3f, 0x1.d21bcap-4f, 0x1.6fd94ap-4f,
        0x1.1692bcp-4f, 0x1.8bd07p-5f,  0x1.0b3aa8p-5f, 0x1.5b40dp-6f,  0x1.78c1e8p-7f,
        0x1.2ef8bcp-8f, 0x1.837496p-9f, 0x1.567be2p-9f, 0x1.e6b358p-11f};
    const Vec one = V::Broadcast(1.0f);
    const Vec scaled = x * V::Broadcast(-1.0f / (3.6f * 3.6f));
    const Vec u = V::Max(V::MultiplyAdd(scaled, x, one), V::Broadcast(-1.0f));
    const Vec square = u * u;
    Vec even = V::Broadcast(kCoefficients[12]);
    Vec odd = V::Broadcast(kCoefficients[13]);
#pragma GCC unroll 8
    for (int i = 10; i >= 0; i -= 2) {
      even = V::MultiplyAdd(even, square, V::Broadcast(kCoefficients[i]));
      odd = V::MultiplyAdd(odd, square, V::Broadcast(kCoefficients[i + 1]));
    }
    const Vec slope = V::MultiplyAdd(odd, u, even);
    const Vec erf = V::Min(slope * (x * V::Broadcast(0.70710678f)), one);
    const Vec half = x * V::Broadcast(0.5f);
    return V::ZeroBelow(V::MultiplyAdd(half, erf, half), x, V::Broadcast(-kEnd));
  }
};

}  // namespace castor::kernels
