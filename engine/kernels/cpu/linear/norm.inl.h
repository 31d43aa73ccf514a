// The kernel of norm.h, written once over the vectors of simd.h.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/elements.inl.h"
#include "engine/kernels/cpu/linear/norm.h"
#include "engine/kernels/cpu/rows.inl.h"

namespace castor::kernels {

template <typename V>
class Norm {
 public:
  static void Run(const NormShape& shape, const void* x, const void* residual, void* y,
                  int64_t rows) {
    switch (shape.element) {
      case Element::kFloat32:
        return Run<Float32>(shape, x, residual, y, rows);
      case Element::kFloat16:
        return Run<Float16>(shape, x, residual, y, rows);
      case Element::kBFloat16:
        return Run<BFloat16>(shape, x, residual, y, rows);
    }
  }

 private:
  using Vec = typename V::Vec;

  template <typename E>
  static void Run(const NormShape& shape, const void* x, const void* residual, void* y,
                  int64_t rows) {
    using Bits = typename E::Bits;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t first = r * shape.hidden;
      Row<E>(shape, static_cast<const Bits*>(x) + first,
             residual == nullptr ? nullptr : static_cast<const Bits*>(residual) + first,
             static_cast<Bits*>(y) + first);
    }
  }

  // The row is read two or three times, which is cheaper than a place to keep it.
  template <typename E>
  static void Row(const NormShape& shape, const typename E::Bits* x,
                  const typename E::Bits* residual, typename E::Bits* y) {
    const auto load = [x, residual](int64_t e, int64_t count) {
      const Vec at = Elements<V, E>::Load(x + e, count);
      return residual == nullptr ? at : (at + Elements<V, E>::Load(residual + e, count));
    };
    const float size = static_cast<float>(shape.hidden);

    Vec mean = V::Zero();
    if (shape.centered) {
      Vec sum = V::Zero();  // elements that do not exist are zeros
      ForColumns<V>(shape.hidden, [&](int64_t e, int64_t n) { sum = sum + load(e, n); });
      mean = V::Broadcast(Across(sum, V::kLanes) / size);
    }

    Vec whole = V::Zero();
    float rest = 0;
    ForColumns<V>(shape.hidden, [&](int64_t e, int64_t n) {
      const Vec from = load(e, n) - mean;
      if (n == V::kLanes) {
        whole = V::MultiplyAdd(from, from, whole);
      } else {
        rest = Across(from * from, n);
      }
    });
    const float variance = (Across(whole, V::kLanes) + rest) / size;
    const Vec scale = V::Broadcast(1.0f / __builtin_sqrtf(variance + shape.epsilon));

    ForColumns<V>(shape.hidden, [&](int64_t e, int64_t n) {
      const Vec unit = (load(e, n) - mean) * scale;
      const Vec weight = Elements<V, Float32>::Load(shape.weight + e, n);
      const Vec bias =
          shape.bias == nullptr ? V::Zero() : Elements<V, Float32>::Load(shape.bias + e, n);
      Elements<V, E>::Store(y + e, V::MultiplyAdd(unit, weight, bias), n);
    });
  }

  // The sum of the first `count` lanes.
  static float Across(Vec x, int64_t count) {
    float lanes[V::kLanes];
    V::Store(lanes, x);
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += lanes[i];
    return sum;
  }
};

}  // namespace castor::kernels
