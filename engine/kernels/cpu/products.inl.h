// What the attention kernels of this folder share: products with small matrices down the lanes, in
// tiles that fill the registers, and the exponential. Everything is a template over the vector
// type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

namespace castor::kernels {

// 2^x for x <= 0, to one unit in the last place; 0 below 2^-126, NaN for NaN, 1 for 0.
template <typename V>
typename V::Vec Exp2(typename V::Vec x) {
  using Vec = typename V::Vec;
  constexpr float kCoefficients[5] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f,
                                      0x1.3cea88p-7f, 0x1.5bba14p-10f};
  // Added to x, the constant rounds it to an integer and leaves that, biased as exponents are, in
  // the low bits.
  const Vec magic = V::Broadcast(12582912.0f + 127.0f);
  const Vec shifted = V::Add(x, magic);
  const Vec f = V::Subtract(x, V::Subtract(shifted, magic));  // in [-1/2, 1/2]
  // Minimax for 2^f with the constant term held at 1.
  Vec y = V::Broadcast(kCoefficients[4]);
  for (int i = 3; i >= 0; --i) y = V::MultiplyAdd(y, f, V::Broadcast(kCoefficients[i]));
  y = V::MultiplyAdd(y, f, V::Broadcast(1.0f));
  return V::ZeroBelow(V::Multiply(y, V::PowerOfTwo(shifted)), x, V::Broadcast(-126.0f));
}

// Products over panels of N vectors. A panel is a transposed matrix, [dim, N lanes]; the other
// matrix is only ever broadcast. A lane's sums run over the rows in their order, whatever the tile.
template <typename V>
class Products {
 public:
  // scores[j, lane] = row j . panel lane: panel [dim, N lanes], rows [count, dim], scores
  // [count, N lanes].
  template <int N>
  static void Scores(const float* panel, const float* rows, int64_t dim, int64_t count,
                     float* scores) {
    constexpr int kMost = V::kRows[N];
    const int64_t tiles = (count + kMost - 1) / kMost;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = count * t / tiles;
      const int64_t tile_rows = count * (t + 1) / tiles - begin;
      kTiles<N>.score[tile_rows](panel, rows + begin * dim, dim, scores + begin * N * kLanes);
    }
  }

  // outputs[e, lane] = decay[lane] * outputs[e, lane] + sum_j weights[j, lane] * values[j, e]:
  // weights [count, N lanes], values [count, dim], decay [N lanes], outputs [dim, N lanes].
  template <int N>
  static void AddValues(const float* weights, const float* values, int64_t dim, int64_t count,
                        const float* decay, float* outputs) {
    constexpr int kMost = V::kRows[N];
    const int64_t tiles = (dim + kMost - 1) / kMost;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = dim * t / tiles;
      const int64_t tile_rows = dim * (t + 1) / tiles - begin;
      kTiles<N>.value[tile_rows](weights, values + begin, dim, count, decay,
                                 outputs + begin * N * kLanes);
    }
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;

  // R of the rows.
  template <int N, int R>
  static void ScoreTile(const float* __restrict panel, const float* __restrict rows, int64_t dim,
                        float* __restrict scores) {
    Vec sum[R][N];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) sum[r][v] = V::Zero();
    }
    for (int64_t e = 0; e < dim; ++e) {
      Vec column[N];
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) column[v] = V::Load(panel + (e * N + v) * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec element = V::BroadcastFrom(rows + r * dim + e);
#pragma GCC unroll 16
        for (int v = 0; v < N; ++v) sum[r][v] = V::MultiplyAdd(element, column[v], sum[r][v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) V::Store(scores + (r * N + v) * kLanes, sum[r][v]);
    }
  }

  // R of the values' columns.
  template <int N, int R>
  static void ValueTile(const float* __restrict weights, const float* __restrict values,
                        int64_t dim, int64_t count, const float* __restrict decay,
                        float* __restrict outputs) {
    Vec sum[R][N];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) sum[r][v] = V::Zero();
    }
    for (int64_t j = 0; j < count; ++j) {
      Vec weight[N];
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) weight[v] = V::Load(weights + (j * N + v) * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec value = V::BroadcastFrom(values + j * dim + r);
#pragma GCC unroll 16
        for (int v = 0; v < N; ++v) sum[r][v] = V::MultiplyAdd(value, weight[v], sum[r][v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) {
        float* output = outputs + (r * N + v) * kLanes;
        const Vec kept = V::Load(decay + v * kLanes);
        V::Store(output, V::MultiplyAdd(V::Load(output), kept, sum[r][v]));
      }
    }
  }

  // The tiles by their number of rows.
  using ScoreTileFn = void (*)(const float*, const float*, int64_t, float*);
  using ValueTileFn = void (*)(const float*, const float*, int64_t, int64_t, const float*, float*);
  static constexpr int kMostRows = 16;

  template <int N>
  struct Tiles {
    ScoreTileFn score[kMostRows + 1] = {};
    ValueTileFn value[kMostRows + 1] = {};
    constexpr Tiles() { Fill<V::kRows[N]>(); }
    template <int R>
    constexpr void Fill() {
      score[R] = &ScoreTile<N, R>;
      value[R] = &ValueTile<N, R>;
      if constexpr (R > 1) Fill<R - 1>();
    }
  };
  template <int N>
  static constexpr Tiles<N> kTiles{};
};

}  // namespace castor::kernels
