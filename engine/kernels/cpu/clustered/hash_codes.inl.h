// Hash codes of clusters.h: the signs of random projections. Lanes hold hyperplanes, so one
// comparison yields a vector's worth of bits of a query's code. A template over the vector type,
// for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/kernels/cpu/clustered/products.inl.h"
#include "engine/kernels/cpu/elements.inl.h"

namespace castor::kernels {

template <typename V>
class HashCodes {
 public:
  static int64_t PackedFloats(int bits, int64_t head_dim) {
    return (Count(Vectors(bits) * kLanes) * (Count(head_dim) + 1)).value();
  }

  // Panel after panel [head_dim, N lanes], then the biases. Planes beyond the last one are padding:
  // no product exceeds their biases, so they set no bit.
  static void Pack(int bits, int64_t head_dim, const float* normals, const float* biases,
                   float* packed) {
    const int64_t vectors = Vectors(bits);
    for (int64_t p = 0; p < Panels(vectors); ++p) {
      const int64_t begin = FirstVector(vectors, p) * kLanes;
      const int64_t end = FirstVector(vectors, p + 1) * kLanes;
      for (int64_t e = 0; e < head_dim; ++e) {
        for (int64_t t = begin; t < end; ++t) {
          packed[begin * head_dim + e * (end - begin) + t - begin] =
              t < bits ? normals[t * head_dim + e] : 0;
        }
      }
    }
    for (int64_t t = 0; t < vectors * kLanes; ++t) {
      packed[vectors * kLanes * head_dim + t] = t < bits ? biases[t] : __builtin_inff();
    }
  }

  static int64_t ScratchFloats(int64_t head_dim) {
    return (Count(kRows) * (Count(head_dim) + kMaxWidth)).value();
  }

  static void Run(const PackedPlanes& planes, Element element, const void* queries, int64_t stride,
                  int64_t count, uint64_t* codes, float* scratch) {
    switch (element) {
      case Element::kFloat32:
        return Run<Float32>(planes, queries, stride, count, codes, scratch);
      case Element::kFloat16:
        return Run<Float16>(planes, queries, stride, count, codes, scratch);
      case Element::kBFloat16:
        return Run<BFloat16>(planes, queries, stride, count, codes, scratch);
    }
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kMaxVectors = 3;
  static constexpr int64_t kMaxWidth = kMaxVectors * kLanes;

  // Queries at a time: they and their products with a panel stay in the first-level cache.
  static constexpr int64_t kRows = 48;

  static int64_t Vectors(int bits) { return (bits + kLanes - 1) / kLanes; }
  static int64_t Panels(int64_t vectors) { return (vectors + kMaxVectors - 1) / kMaxVectors; }
  static int64_t FirstVector(int64_t vectors, int64_t panel) {
    return vectors * panel / Panels(vectors);
  }

  template <typename E>
  static void Run(const PackedPlanes& planes, const void* queries, int64_t stride, int64_t count,
                  uint64_t* codes, float* scratch) {
    const auto* source = static_cast<const typename E::Bits*>(queries);
    const int64_t vectors = Vectors(planes.bits);
    float* const products = scratch + kRows * planes.head_dim;
    for (int64_t begin = 0; begin < count; begin += kRows) {
      const int64_t rows = count - begin < kRows ? count - begin : kRows;
      for (int64_t i = 0; i < rows; ++i) {
        const auto* const row = source + (begin + i) * stride;
        for (int64_t e = 0; e < planes.head_dim; e += kLanes) {
          const int64_t left = planes.head_dim - e < kLanes ? planes.head_dim - e : kLanes;
          Elements<V, Float32>::Store(scratch + i * planes.head_dim + e,
                                      Elements<V, E>::Load(row + e, left), left);
        }
        codes[begin + i] = 0;
      }
      for (int64_t p = 0; p < Panels(vectors); ++p) {
        const int64_t first = FirstVector(vectors, p);
        switch (FirstVector(vectors, p + 1) - first) {
          case 1:
            HashPanel<1>(planes, first, scratch, rows, codes + begin, products);
            break;
          case 2:
            HashPanel<2>(planes, first, scratch, rows, codes + begin, products);
            break;
          case 3:
            HashPanel<3>(planes, first, scratch, rows, codes + begin, products);
            break;
        }
      }
    }
  }

  // queries [rows, head_dim], products [rows, N lanes].
  template <int N>
  static void HashPanel(const PackedPlanes& planes, int64_t first, const float* queries,
                        int64_t rows, uint64_t* codes, float* products) {
    Products<V>::template Scores<N>(planes.packed + first * kLanes * planes.head_dim, queries,
                                    planes.head_dim, rows, products);
    const float* biases =
        planes.packed + Vectors(planes.bits) * kLanes * planes.head_dim + first * kLanes;
    Vec bias[N];
    for (int v = 0; v < N; ++v) bias[v] = V::Load(biases + v * kLanes);
    for (int64_t i = 0; i < rows; ++i) {
      uint64_t bits = 0;
      for (int v = 0; v < N; ++v) {
        const Vec product = V::Load(products + (i * N + v) * kLanes);
        bits |= uint64_t{V::Greater(product, bias[v])} << (v * kLanes);
      }
      codes[i] |= bits << (first * kLanes);
    }
  }
};

}  // namespace castor::kernels
