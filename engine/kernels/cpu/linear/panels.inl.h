// Panels: one to three vectors side by side, [dim, N lanes] in memory. The kernels of this folder
// hold one operand in a panel while they process the rows of the other (products.inl.h). This file
// divides lanes among panels, and transposes rows of tokens into panels and out of them. Everything
// is a template over the vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/elements.inl.h"

namespace castor::kernels {

template <int kVectors>
struct VectorCount {
  static constexpr int N = kVectors;
};

template <typename V>
struct Panels {
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kMaxVectors = 3;
  static constexpr int64_t kMaxWidth = kMaxVectors * kLanes;

  static constexpr int64_t RoundUp(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

  // Rows fill vectors, which are divided as evenly as possible among as few panels as possible.
  static int64_t Vectors(int64_t rows) { return (rows + kLanes - 1) / kLanes; }
  static int64_t Count(int64_t rows) { return (Vectors(rows) + kMaxVectors - 1) / kMaxVectors; }
  static int64_t FirstLane(int64_t rows, int64_t panel) {
    return Vectors(rows) * panel / Count(rows) * kLanes;
  }

  // Calls f(VectorCount<N>(), lane) for each panel of `rows` rows: of N vectors, from lane `lane`.
  template <typename F>
  static void For(int64_t rows, F f) {
    const int64_t panels = Count(rows);
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t lane = FirstLane(rows, p);
      switch ((FirstLane(rows, p + 1) - lane) / kLanes) {
        case 1:
          f(VectorCount<1>{}, lane);
          break;
        case 2:
          f(VectorCount<2>{}, lane);
          break;
        case 3:
          f(VectorCount<3>{}, lane);
          break;
      }
    }
  }

  // panel [dim, N lanes] = factor * the rows that row(lane) points to, transposed; zeros for the
  // lanes from `count` on.
  template <int N, typename E, typename RowOf>
  static void Load(RowOf row, int64_t count, int64_t dim, float factor, float* panel) {
    for (int64_t lane = 0; lane < N * kLanes; lane += kLanes) {
      LoadVector<N, E>([&](int64_t i) { return row(lane + i); }, count - lane, dim, factor,
                       panel + lane);
    }
  }

  // The same for one vector of the panel, which `panel` points to.
  template <int N, typename E, typename RowOf>
  static void LoadVector(RowOf row, int64_t count, int64_t dim, float factor, float* panel) {
    const Vec factors = V::Broadcast(factor);
    const typename E::Bits* source[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) source[i] = i < count ? row(i) : nullptr;
    int64_t e = 0;
    if (kLanes <= count) {
      for (; e + kLanes <= dim; e += kLanes) {
        Vec rows[kLanes];
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i) {
          rows[i] = factors * Elements<V, E>::LoadVector(source[i] + e);
        }
        V::Transpose(rows);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i) V::Store(panel + (e + i) * N * kLanes, rows[i]);
      }
    }
    for (; e < dim; e += kLanes) {
      const int64_t width = dim - e < kLanes ? dim - e : kLanes;
      Vec rows[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        rows[i] = source[i] == nullptr ? V::Zero()
                                       : (factors * Elements<V, E>::Load(source[i] + e, width));
      }
      V::Transpose(rows);
      for (int64_t i = 0; i < width; ++i) V::Store(panel + (e + i) * N * kLanes, rows[i]);
    }
  }

  // The rows that row(lane) points to, for the lanes below `count`, = the panel [dim, N lanes],
  // transposed. scale(v, x) is applied to each x, which lies in the panel's vector v.
  template <int N, typename E, typename Scale, typename RowOf>
  static void Store(const float* panel, int64_t count, int64_t dim, Scale scale, RowOf row) {
    for (int v = 0; v < N; ++v) {
      const int64_t left = count - v * kLanes < kLanes ? count - v * kLanes : kLanes;
      int64_t e = 0;
      for (; e + kLanes <= dim; e += kLanes) {
        Vec rows[kLanes];
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i) {
          rows[i] = scale(v, V::Load(panel + ((e + i) * N + v) * kLanes));
        }
        V::Transpose(rows);
        if (left == kLanes) {
#pragma GCC unroll 16
          for (int64_t i = 0; i < kLanes; ++i) {
            Elements<V, E>::StoreVector(row(v * kLanes + i) + e, rows[i]);
          }
          continue;
        }
        for (int64_t i = 0; i < left; ++i) {
          Elements<V, E>::StoreVector(row(v * kLanes + i) + e, rows[i]);
        }
      }
      if (e == dim) continue;
      Vec rows[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        rows[i] = i < dim - e ? scale(v, V::Load(panel + ((e + i) * N + v) * kLanes)) : V::Zero();
      }
      V::Transpose(rows);
      for (int64_t i = 0; i < left; ++i) {
        Elements<V, E>::Store(row(v * kLanes + i) + e, rows[i], dim - e);
      }
    }
  }
};

}  // namespace castor::kernels
