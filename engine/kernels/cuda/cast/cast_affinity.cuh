// The parts of CAST's affinities: the products of queries and keys with surrogates, and the sums of
// their softmaxes over the clusters.
#pragma once

#include "engine/kernels/cuda/cast/cast_args.cuh"
#include "engine/kernels/cuda/cast/cast_math.cuh"
#include "engine/kernels/cuda/cast/cast_tile.cuh"

namespace castor::kernels::cuda {

inline constexpr int kWarpClusters = 64;  // columns of a warp, whose rows are 16 tokens

// c[0] and c[1]: the products of 16 queries and of 16 keys with 64 surrogates.
using Products = float[2][kWarpClusters / 8][4];

// Queries and keys of some tokens of a sequence, and surrogates, in dynamic shared memory.
template <typename T, int kColumns>
class Tiles {
 public:
  static constexpr int kStride = PairStride(kColumns);

  // `rows` tokens from `token` on, of `left` that the sequence still has; `columns` clusters.
  __device__ Tiles(const CastArgs& args, int sequence, int64_t token, int left, int rows,
                   int columns)
      : a_(args),
        surrogates_(static_cast<const T*>(args.batch.surrogates) +
                    int64_t{args.layer[sequence]} * args.shape.clusters * args.shape.heads *
                        args.shape.head_dim),
        token_(token),
        left_(left),
        rows_(rows),
        columns_(columns) {}

  // Columns [e, e + kColumns) of a head; the tokens too if `with_tokens`. All threads call it.
  __device__ void Load(int head, int e, int first_cluster, bool with_tokens) {
    const int dim = a_.shape.head_dim;
    const int width = min(kColumns, dim - e);
    const int64_t at = int64_t{head} * dim + e;
    const int64_t key_at = int64_t{head / a_.shape.group} * dim + e;
    Pair<T>* const tile = DynamicShared<Pair<T>>();
    if (with_tokens) {
      const auto load = [&](Pair<T>* to, const void* data, int64_t stride, int64_t first,
                            bool vector) {
        const T* const base = static_cast<const T*>(data) + token_ * stride + first;
        LoadTile<T, kColumns>(to, rows_, width, vector, StridedRows<T>{base, stride, 0, left_});
      };
      load(tile, a_.batch.query, a_.batch.query_stride, at, a_.vector_query);
      load(tile + rows_ * kStride, a_.batch.key, a_.batch.key_stride, key_at, a_.vector_key);
    }
    const int64_t stride = int64_t{a_.shape.heads} * dim;
    const T* const base = surrogates_ + first_cluster * stride + at;
    const int existing = a_.shape.clusters - first_cluster;
    LoadTile<T, kColumns>(tile + 2 * rows_ * kStride, columns_, width, a_.vector_surrogates,
                          StridedRows<T>{base, stride, 0, existing});
    CommitCopies();
  }

  // Adds what that piece contributes, for the warp's tokens from `row` and clusters from `column`
  // on, of which `valid` exist.
  __device__ void Multiply(int e, int row, int column, int valid, Products& c) const {
    const Pair<T>* const tile = DynamicShared<Pair<T>>();
    const int steps = (min(kColumns, a_.shape.head_dim - e) + 15) / 16;
    MultiplyRows<T, kStride, 2, kWarpClusters / 8>(c, tile + row * kStride, rows_ * kStride,
                                                   tile + (2 * rows_ + column) * kStride, steps,
                                                   valid);
  }

  __host__ __device__ static int Bytes(int rows, int columns) {
    return TileBytes<T>(2 * rows + columns, kColumns);
  }

 private:
  const CastArgs& a_;
  const T* const surrogates_;
  const int64_t token_;
  const int left_;
  const int rows_;
  const int columns_;
};

// Softmaxes of one row over clusters: of the query's scores, of the same stretched by the
// gate temperature, and of the key's.
struct RowSums {
  float query_max = -INFINITY;
  float query = 0;
  float weight = 0;  // against query_max, as query
  float key_max = -INFINITY;
  float key = 0;

  // `factor` is the magnitude of the scale, times the query's gate temperature, here and below.
  __device__ void Rescale(const CastArgs& a, float new_query_max, float new_key_max, float factor) {
    query = Rescaled(query, query_max, new_query_max, a.scale.magnitude);
    weight = Rescaled(weight, query_max, new_query_max, factor);
    key = Rescaled(key, key_max, new_key_max, a.scale.magnitude);
    query_max = new_query_max;
    key_max = new_key_max;
  }

  // Adds the scores of row r of the fragments; those of columns from `valid` on do not exist.
  __device__ void Add(const CastArgs& a, const Products& c, int r, int valid, float factor) {
    const int t = threadIdx.x % 4;
    float new_query_max = query_max;
    float new_key_max = key_max;
#pragma unroll
    for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * n + 2 * t + i >= valid) continue;
        new_query_max = fmaxf(new_query_max, c[0][n][2 * r + i] * a.scale.sign);
        new_key_max = fmaxf(new_key_max, c[1][n][2 * r + i] * a.scale.sign);
      }
    }
    Rescale(a, new_query_max, new_key_max, factor);
#pragma unroll
    for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * n + 2 * t + i >= valid) continue;
        const float x = c[0][n][2 * r + i] * a.scale.sign - query_max;
        query += Exp2(a.scale.magnitude * x);
        weight += Exp2(factor * x);
        key += Exp2(a.scale.magnitude * (c[1][n][2 * r + i] * a.scale.sign - key_max));
      }
    }
  }

  // Adds up the four lanes that share the row.
  __device__ void AddQuad(const CastArgs& a, float factor) {
    Rescale(a, QuadMax(query_max), QuadMax(key_max), factor);
    query = QuadSum(query);
    weight = QuadSum(weight);
    key = QuadSum(key);
  }

  __device__ float4 ForAffinities() const {
    return make_float4(query_max, 1 / query, key_max, 1 / key);
  }
  __device__ float2 ForWeights() const { return make_float2(query_max, 1 / weight); }
};

}  // namespace castor::kernels::cuda
