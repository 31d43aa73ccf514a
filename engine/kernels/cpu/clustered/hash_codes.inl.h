// Hash codes of clusters.h: the signs of random projections. Lanes hold hyperplanes, so one
// comparison yields a vector's worth of bits of a query's code. A template over the vector type,
// for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/kernels/cpu/clustered/products.inl.h"
#include "engine/kernels/cpu/linear/panels.inl.h"
#include "engine/kernels/cpu/rows.inl.h"

namespace castor::kernels {

template <typename V>
class HashCodes {
 public:
  static int64_t PackedFloats(int bits, int64_t head_dim) {
    return (Count(Panels::RoundUp(bits)) * (Count(head_dim) + 1)).value();
  }

  // Panel after panel [head_dim, N lanes], then the biases. Planes beyond the last one are padding:
  // no product exceeds their biases, so they set no bit.
  static void Pack(int bits, int64_t head_dim, const float* normals, const float* biases,
                   float* packed) {
    Panels::For(bits, [&](auto vectors, int64_t begin) {
      constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
      for (int64_t e = 0; e < head_dim; ++e) {
        for (int64_t t = begin; t < begin + kWidth; ++t) {
          packed[begin * head_dim + e * kWidth + t - begin] =
              t < bits ? normals[t * head_dim + e] : 0;
        }
      }
    });
    const int64_t padded = Panels::RoundUp(bits);
    for (int64_t t = 0; t < padded; ++t) {
      packed[padded * head_dim + t] = t < bits ? biases[t] : __builtin_inff();
    }
  }

  static int64_t ScratchFloats(int64_t head_dim) {
    return (Count(kRows) * (Count(head_dim) + Panels::kMaxWidth)).value();
  }

  static void Run(const PackedPlanes& planes, Element element, const void* queries, int64_t stride,
                  int64_t count, uint64_t* codes, float* scratch) {
    ForElement<V>(element, [&](auto of) {
      Run<decltype(of)>(planes, queries, stride, count, codes, scratch);
    });
  }

 private:
  using Vec = typename V::Vec;
  using Panels = kernels::Panels<V>;
  static constexpr int64_t kLanes = V::kLanes;

  // Queries at a time: they and their products with a panel stay in the first-level cache.
  static constexpr int64_t kRows = 48;

  template <typename E>
  static void Run(const PackedPlanes& planes, const void* queries, int64_t stride, int64_t count,
                  uint64_t* codes, float* scratch) {
    const auto* source = static_cast<const typename E::Bits*>(queries);
    float* const products = scratch + kRows * planes.head_dim;
    for (int64_t begin = 0; begin < count; begin += kRows) {
      const int64_t rows = count - begin < kRows ? count - begin : kRows;
      for (int64_t i = 0; i < rows; ++i) {
        LoadRow<V, E>(source + (begin + i) * stride, planes.head_dim,
                      scratch + i * planes.head_dim);
        codes[begin + i] = 0;
      }
      Panels::For(planes.bits, [&](auto vectors, int64_t first) {
        HashPanel<decltype(vectors)::N>(planes, first, scratch, rows, codes + begin, products);
      });
    }
  }

  // The bits from `first` on: queries [rows, head_dim], products [rows, N lanes].
  template <int N>
  static void HashPanel(const PackedPlanes& planes, int64_t first, const float* queries,
                        int64_t rows, uint64_t* codes, float* products) {
    Products<V>::template Scores<N>(planes.packed + first * planes.head_dim, queries,
                                    planes.head_dim, rows, products);
    const float* biases = planes.packed + Panels::RoundUp(planes.bits) * planes.head_dim + first;
    Vec bias[N];
    for (int v = 0; v < N; ++v) bias[v] = V::Load(biases + v * kLanes);
    for (int64_t i = 0; i < rows; ++i) {
      uint64_t bits = 0;
      for (int v = 0; v < N; ++v) {
        const Vec product = V::Load(products + (i * N + v) * kLanes);
        bits |= uint64_t{V::Greater(product, bias[v])} << (v * kLanes);
      }
      codes[i] |= bits << first;
    }
  }
};

}  // namespace castor::kernels
