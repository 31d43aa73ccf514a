// The matrix products of this folder's kernels: rows with a panel (panels.inl.h), in tiles that
// fill the registers. Everything is a template over the vector type, for the reason given in
// flash.inl.h.
#pragma once

#include <cstdint>

namespace castor::kernels {

// Values [rows, dim], packed for the tiles that read them: tile after tile of `columns` columns, or
// fewer in the last, each [rows, columns]. So a tile reads contiguous memory, not rows that are
// `dim` apart.
template <typename V>
struct PackedValues {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t columns = 0;  // at most V::kRows[N] for the panels of N vectors that they are added to

  // Calls f(first column, columns, tile) for each tile.
  template <typename F>
  void ForTiles(F f) const {
    for (int64_t e = 0; e < dim; e += columns) {
      f(e, dim - e < columns ? dim - e : columns, data + e * rows);
    }
  }

  void SetRow(int64_t j, const float* row) const {
    constexpr int64_t kUsual = V::kRows[3];
    ForTiles([&](int64_t e, int64_t width, float* tile) {
      if (width == kUsual) {
        __builtin_memcpy(tile + j * kUsual, row + e, kUsual * sizeof(float));
        return;
      }
      for (int64_t c = 0; c < width; ++c) tile[j * width + c] = row[e + c];
    });
  }
};

// Products over panels of N vectors. A panel is a transposed matrix, [dim, N lanes]; the other
// matrix is only broadcast. A lane's sums run over the rows in their order, whatever the tile.
//
// `Words` multiplies what a word of 32 bits holds: a float, or a pair of bfloat16, of which `dim`
// and the rows of values then count half as many.
template <typename V, typename Words = V>
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

  // The same for `count` rows of packed values, from row `first` on.
  template <int N>
  static void AddValues(const float* weights, const PackedValues<V>& values, int64_t first,
                        int64_t count, const float* decay, float* outputs) {
    values.ForTiles([&](int64_t e, int64_t columns, const float* tile) {
      kTiles<N>.value[columns](weights, tile + first * columns, columns, count, decay,
                               outputs + e * N * kLanes);
    });
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
        const Vec element = V::Broadcast(rows[r * dim + e]);
#pragma GCC unroll 16
        for (int v = 0; v < N; ++v) sum[r][v] = Words::MultiplyAdd(element, column[v], sum[r][v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) V::Store(scores + (r * N + v) * kLanes, sum[r][v]);
    }
  }

  // R of the values' columns; `stride` floats from one row to the next.
  template <int N, int R>
  static void ValueTile(const float* __restrict weights, const float* __restrict values,
                        int64_t stride, int64_t count, const float* __restrict decay,
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
        const Vec value = V::Broadcast(values[j * stride + r]);
#pragma GCC unroll 16
        for (int v = 0; v < N; ++v) sum[r][v] = Words::MultiplyAdd(value, weight[v], sum[r][v]);
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
