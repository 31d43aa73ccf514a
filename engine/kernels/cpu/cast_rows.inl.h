// What the parts of the CAST kernel share: rows of tokens in and out of panels, and places in the
// scratch area. Everything is a template over the vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/elements.inl.h"

namespace castor::kernels {

// Hands out parts of a scratch area or, without one, only counts.
template <typename V>
struct CastScratch {
  explicit CastScratch(float* base) : base(base) {}

  float* Take(int64_t count) {
    float* const taken = base == nullptr ? nullptr : base + floats;
    floats += (count + 15) / 16 * 16;
    return taken;
  }

  float* base;
  int64_t floats = 0;
};

template <typename V>
struct CastRows {
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;

  static constexpr int64_t RoundUp(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

  static constexpr int64_t kMaxVectors = 3;  // in a panel

  // Tokens fill vectors, which are divided among as few panels as hold them, as evenly as possible.
  static int64_t Vectors(int64_t tokens) { return (tokens + kLanes - 1) / kLanes; }
  static int64_t Panels(int64_t tokens) {
    return (Vectors(tokens) + kMaxVectors - 1) / kMaxVectors;
  }
  static int64_t FirstLane(int64_t tokens, int64_t panel) {
    return Vectors(tokens) * panel / Panels(tokens) * kLanes;
  }

  // Calls f(N, lane) for each panel, with its number of vectors as a constant and its first lane.
  template <typename F>
  static void ForPanels(int64_t tokens, F f) {
    for (int64_t p = 0; p < Panels(tokens); ++p) {
      const int64_t lane = FirstLane(tokens, p);
      switch ((FirstLane(tokens, p + 1) - lane) / kLanes) {
        case 1:
          f(Vectors1{}, lane);
          break;
        case 2:
          f(Vectors2{}, lane);
          break;
        case 3:
          f(Vectors3{}, lane);
          break;
      }
    }
  }
  template <int kN>
  struct VectorCount {
    static constexpr int N = kN;
  };
  using Vectors1 = VectorCount<1>;
  using Vectors2 = VectorCount<2>;
  using Vectors3 = VectorCount<3>;

  // panel [dim, N lanes] = factor * the rows that row(lane) points to, transposed; zeros for the
  // lanes from `count` on.
  template <int N, typename E, typename RowOf>
  static void LoadPanel(RowOf row, int64_t count, int64_t dim, float factor, float* panel) {
    const Vec factors = V::Broadcast(factor);
    for (int64_t lane = 0; lane < N * kLanes; lane += kLanes) {
      const typename E::Bits* source[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        source[i] = lane + i < count ? row(lane + i) : nullptr;
      }
      for (int64_t e = 0; e < dim; e += kLanes) {
        const int64_t width = dim - e < kLanes ? dim - e : kLanes;
        Vec rows[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          rows[i] = source[i] == nullptr
                        ? V::Zero()
                        : V::Multiply(factors, Elements<V, E>::Load(source[i] + e, width));
        }
        V::Transpose(rows);
        for (int64_t i = 0; i < width; ++i) {
          V::Store(panel + (e + i) * N * kLanes + lane, rows[i]);
        }
      }
    }
  }

  // Asks for a row that will be loaded later, so that it comes while something is computed. Rows of
  // one head lie far apart, where the processor does not look ahead by itself.
  template <typename T>
  static void Prefetch(const T* row, int64_t dim) {
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t e = 0; e < dim; e += kLine) __builtin_prefetch(row + e, 0, 2);
  }

  // rows [count, dim] = the panel [dim, N lanes], transposed, times factors[lane].
  template <int N>
  static void StorePanel(const float* panel, int64_t count, int64_t dim, const Vec factors[N],
                         float* out) {
    for (int v = 0; v < N; ++v) {
      for (int64_t e = 0; e < dim; e += kLanes) {
        const int64_t width = dim - e < kLanes ? dim - e : kLanes;
        Vec rows[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          rows[i] = i < width ? V::Multiply(V::Load(panel + ((e + i) * N + v) * kLanes), factors[v])
                              : V::Zero();
        }
        V::Transpose(rows);
        for (int64_t i = 0; i < kLanes && v * kLanes + i < count; ++i) {
          Elements<V, Float32>::Store(out + (v * kLanes + i) * dim + e, rows[i], width);
        }
      }
    }
  }

  // Elements of a row, from float32.
  template <typename E>
  static void StoreRow(const float* row, int64_t dim, typename E::Bits* out) {
    for (int64_t e = 0; e < dim; e += kLanes) {
      const int64_t width = dim - e < kLanes ? dim - e : kLanes;
      Elements<V, E>::Store(out + e, Elements<V, Float32>::Load(row + e, width), width);
    }
  }

  // sum[e] += factor * row[e].
  static void AddRow(float factor, const float* row, int64_t dim, float* sum) {
    const Vec factors = V::Broadcast(factor);
    int64_t e = 0;
    for (; e + kLanes <= dim; e += kLanes) {
      V::Store(sum + e, V::MultiplyAdd(factors, V::Load(row + e), V::Load(sum + e)));
    }
    for (; e < dim; ++e) sum[e] += factor * row[e];
  }
};

}  // namespace castor::kernels
