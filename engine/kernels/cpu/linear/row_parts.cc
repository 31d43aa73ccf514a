// The kernel of row_parts.h, written once over the vectors of simd.h.
#include "engine/kernels/cpu/linear/row_parts.h"

#include <cstdint>

#include "engine/kernels/cpu/elements.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/simd.h"

namespace castor::kernels {

template <typename V>
class RowParts {
 public:
  static void Rotate(Element element, void* row, int64_t heads, int64_t half, const float* cos,
                     const float* sin) {
    ForElement<V>(element, [&](auto of) { Rotate<decltype(of)>(row, heads, half, cos, sin); });
  }

  static void Multiply(Element element, void* y, const void* x, int64_t count) {
    ForElement<V>(element, [&](auto of) { Multiply<decltype(of)>(y, x, count); });
  }

 private:
  using Vec = typename V::Vec;

  template <typename E>
  static void Rotate(void* row, int64_t heads, int64_t half, const float* cos, const float* sin) {
    auto* const first = static_cast<typename E::Bits*>(row);
    for (int64_t h = 0; h < heads; ++h) {
      auto* const low = first + 2 * h * half;
      auto* const high = low + half;
      ForColumns<V>(half, [&](int64_t e, int64_t n) {
        const Vec x = Elements<V, E>::Load(low + e, n);
        const Vec y = Elements<V, E>::Load(high + e, n);
        const Vec c = Elements<V, Float32>::Load(cos + e, n);
        const Vec s = Elements<V, Float32>::Load(sin + e, n);
        Elements<V, E>::Store(low + e, x * c - y * s, n);
        Elements<V, E>::Store(high + e, V::MultiplyAdd(y, c, x * s), n);
      });
    }
  }

  template <typename E>
  static void Multiply(void* y, const void* x, int64_t count) {
    auto* const to = static_cast<typename E::Bits*>(y);
    const auto* const from = static_cast<const typename E::Bits*>(x);
    ForColumns<V>(count, [&](int64_t e, int64_t n) {
      const Vec product = Elements<V, E>::Load(to + e, n) * Elements<V, E>::Load(from + e, n);
      Elements<V, E>::Store(to + e, product, n);
    });
  }
};

const RowPartsKernel CASTOR_SIMD_NAME(kRowParts) = {
    Simd::kBackend, &Simd::RunsHere, &RowParts<Simd>::Rotate, &RowParts<Simd>::Multiply};

}  // namespace castor::kernels
