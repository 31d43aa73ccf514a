// The kernel of norm.h, written once over the vectors of simd.h.
#include "engine/kernels/cpu/linear/norm.h"

#include <cstdint>

#include "engine/kernels/cpu/elements.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

template <typename V>
class Norm {
 public:
  static void Run(const NormShape& shape, const void* x, const void* residual, void* y,
                  int64_t rows) {
    ForElement<V>(shape.element, [&](auto element) {
      using E = decltype(element);
      using Bits = typename E::Bits;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t first = r * shape.hidden;
        Row<E>(shape, static_cast<const Bits*>(x) + first,
               residual == nullptr ? nullptr : static_cast<const Bits*>(residual) + first,
               static_cast<Bits*>(y) + first);
      }
    });
  }

 private:
  using Vec = typename V::Vec;

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
      mean = V::Broadcast(V::Sum(sum) / size);
    }

    Vec whole = V::Zero();
    float rest = 0;
    ForColumns<V>(shape.hidden, [&](int64_t e, int64_t n) {
      const Vec from = load(e, n) - mean;
      if (n == V::kLanes) {
        whole = V::MultiplyAdd(from, from, whole);
      } else {
        rest = V::Sum(from * from, n);
      }
    });
    const float variance = (V::Sum(whole) + rest) / size;
    const Vec scale = V::Broadcast(1.0f / __builtin_sqrtf(variance + shape.epsilon));

    ForColumns<V>(shape.hidden, [&](int64_t e, int64_t n) {
      const Vec unit = (load(e, n) - mean) * scale;
      const Vec weight = Elements<V, Float32>::Load(shape.weight + e, n);
      const Vec bias =
          shape.bias == nullptr ? V::Zero() : Elements<V, Float32>::Load(shape.bias + e, n);
      Elements<V, E>::Store(y + e, V::MultiplyAdd(unit, weight, bias), n);
    });
  }
};

const NormKernel CASTOR_SIMD_NAME(kNorm) = {Simd::kBackend, &Simd::RunsHere, &Norm<Simd>::Run};

}  // namespace castor::kernels
