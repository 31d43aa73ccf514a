// Steps 4 and 5 of CAST: attention inside the clusters, and their summaries.
//
// A block has some queries of one cluster and one head and goes through the cluster's keys in tiles
// of 64 with an online softmax, gathering all rows by the members' list. A row is one line of 128
// bytes at d = 64, so gathering costs no more than streaming. It writes its rows times alpha, the
// weight with which their token sees this cluster, so that the combination only adds. The first
// block of each cluster and head also computes the summary, one more query with a temperature of
// its own for every key, on the plain units while the tiles are in shared memory.
//
// Cost a slot-head at d = 64, bf16: 384 B gathered, keys and values again from L2 for every further
// 128 queries, 128 B written, 4 kappa d flop. 64K tokens, 8 heads, kappa = 256: 62 us of bytes.

#include "engine/kernels/cuda/cast/cast_summary.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

// grid (query tiles of all rows, heads of a clustering, pieces of value_dim), block kInsideThreads
template <typename T, int kColumns>
__global__ void __launch_bounds__(kInsideThreads) InsideKernel(const CastArgs a) {
  using Shared = InsideShared<T, kColumns>;
  constexpr int kStride = Shared::kStride;
  constexpr int kM = CastRowTiles(sizeof(T) == 4, kColumns);
  Shared& shared = *DynamicShared<Shared>();

  const int64_t rows = int64_t{a.clusterings} * a.shape.clusters;
  const int s = FindSequence(a.query_tiles, a.sequences, rows, blockIdx.x);
  const int tiles = a.query_tiles[s + 1] - a.query_tiles[s];
  const int64_t local = blockIdx.x - a.query_tiles[s] * rows;
  const CastRow row = RowOf(a, s * rows + local / tiles);
  const int first = static_cast<int>(local % tiles) * Shared::kRows;  // query of the cluster
  const int heads = a.shape.heads / a.clusterings;
  const int head = row.clustering * heads + static_cast<int>(blockIdx.y);
  const int first_column = static_cast<int>(blockIdx.z) * kColumns;
  const int columns = min(kColumns, a.shape.value_dim - first_column);
  const int count = a.counts[row.index];
  const bool summarizes = first == 0;
  if (first >= count && !summarizes) return;

  const int dim = a.shape.head_dim;
  const int64_t token = row.first_token;
  const int32_t* const members = a.members + row.slot;
  const int64_t kv_head = head / a.shape.group;
  const T* const query =
      static_cast<const T*>(a.batch.query) + token * a.batch.query_stride + int64_t{head} * dim;
  const T* const key =
      static_cast<const T*>(a.batch.key) + token * a.batch.key_stride + kv_head * dim;
  const T* const value = static_cast<const T*>(a.batch.value) + token * a.batch.value_stride +
                         kv_head * a.batch.value_head_stride + first_column;
  const T* const surrogate =
      static_cast<const T*>(a.batch.surrogates) +
      ((int64_t{a.layer[s]} * a.shape.clusters + row.cluster) * a.shape.heads + head) * dim;

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kM;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const bool warp_works = first + warp_row < count;

  float o[kM][kColumns / 8][4];
  float max[kM][2], sum[kM][2], alpha[kM][2];  // of rows g and g + 8; sum and alpha of this lane
  Clear(o);
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      max[m][r] = -INFINITY;
      sum[m][r] = alpha[m][r] = 0;
    }
  }
  Summary<T, kColumns> summary;

  const auto load_keys = [&](int tile, int e) {
    const int width = min(kColumns, dim - e);
    LoadTile<T, kColumns>(shared.key, kKeys, width, a.vector_key,
                          GatheredRows<T>{key, a.batch.key_stride, members, tile, count, e});
    if (tile == 0 || dim > kColumns) {
      LoadTile<T, kColumns>(shared.query, Shared::kRows, width, a.vector_query,
                            GatheredRows<T>{query, a.batch.query_stride, members, first, count, e});
      for (int i = static_cast<int>(threadIdx.x); i < kColumns; i += kInsideThreads) {
        shared.surrogate[i] = i < width ? ToFloat(surrogate[e + i]) : 0;
      }
    }
    CommitCopies();
  };

  if (count > 0) load_keys(0, 0);
  for (int tile = 0; tile < count; tile += kKeys) {
    const int left = count - tile;
    float c[kM][kKeys / 8][4];
    Clear(c);
    for (int e = 0; e < dim; e += kColumns) {
      if (e > 0) {
        __syncthreads();  // the piece before has been read
        load_keys(tile, e);
      }
      WaitCopies<0>();
      __syncthreads();
      if (e + kColumns >= dim) {
        // Values arrive while the scores are computed.
        LoadTile<T, kColumns>(shared.value, kKeys, columns, a.vector_value,
                              GatheredRows<T>{value, a.batch.value_stride, members, tile, count});
        CommitCopies();
      }
      const int steps = (min(kColumns, dim - e) + 15) / 16;
      if (warp_works) {
        MultiplyRows<T, kStride, kM, kKeys / 8>(c, shared.query + warp_row * kStride, 16 * kStride,
                                                shared.key, steps, left);
        if (tile == 0) {  // q s, of which alpha is made at the end
#pragma unroll
          for (int m = 0; m < kM; ++m) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              const Pair<T>* const at = shared.query + (warp_row + 16 * m + 8 * r + g) * kStride;
              for (int p = t; p < 8 * steps; p += 4) {
                const float2 pair = Unpair<T>(at[p]);
                alpha[m][r] +=
                    pair.x * shared.surrogate[2 * p] + pair.y * shared.surrogate[2 * p + 1];
              }
            }
          }
        }
      }
      if (summarizes) summary.Multiply(shared);
    }
    // Scores become weights.
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!warp_works) continue;
        if (a.shape.laplace) {
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; ++i) {
              c[m][n][i] =
                  8 * n + 2 * t + i % 2 < left ? Laplace(c[m][n][i] * a.shape.scale) : 0.0f;
            }
          }
          continue;
        }
        float tile_max = max[m][r];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i) {
            c[m][n][i] = 8 * n + 2 * t + i % 2 < left ? c[m][n][i] * a.scale.sign : -INFINITY;
            tile_max = fmaxf(tile_max, c[m][n][i]);
          }
        }
        tile_max = QuadMax(tile_max);
        const float shrink = Rescaled(1, max[m][r], tile_max, a.scale.magnitude);
        max[m][r] = tile_max;
        sum[m][r] *= shrink;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i) {
            c[m][n][i] = Exp2(a.scale.magnitude * (c[m][n][i] - tile_max));
            sum[m][r] += c[m][n][i];
          }
        }
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          o[m][n][2 * r] *= shrink;
          o[m][n][2 * r + 1] *= shrink;
        }
      }
    }
    if (summarizes) summary.Score(a, shared, members + tile, token, left);
    WaitCopies<0>();
    __syncthreads();  // the values are there, and the keys have been read
    if (tile + kKeys < count) load_keys(tile + kKeys, 0);
    if (summarizes) summary.Add(a, shared, left);
    if (warp_works) {
      MultiplyWeights<T, kColumns, kM, kKeys / 8>(o, c, shared.value, left);
    }
  }

  if (warp_works) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float product = QuadSum(alpha[m][r]);
        const float total = QuadSum(sum[m][r]);
        const int at = first + warp_row + 16 * m + 8 * r + g;
        if (at >= count) continue;
        const int64_t member = token + members[at];
        const float phi = a.batch.gate[member];
        float factor;
        if (a.shape.laplace) {
          factor = Laplace(product * LaplaceFactorOf(a, phi));
        } else {
          const float2 stats = a.weight_stats[member * a.shape.heads + head];
          // The greatest score was summed in another order, so rounding can make it less than this
          // one.
          const float below = fminf(product * a.scale.sign - stats.x, 0);
          factor = Exp2(ScaleFactorOf(a, phi) * below) * stats.y / total;
        }
        const int64_t to = ((row.slot + at) * heads + blockIdx.y) * a.row_pitch + first_column;
#pragma unroll
        for (int j = 0; j < kColumns / 16; ++j) {
          const int column = 16 * j + 4 * t;
          if (column >= columns) continue;  // the pitch is a multiple of 4
          float4 four = FourOf(o[m], r, j);
          four.x *= factor;
          four.y *= factor;
          four.z *= factor;
          four.w *= factor;
          if (a.wide) {
            StoreFour(static_cast<float*>(a.inside) + to + column, four);
          } else {
            StoreFour(static_cast<T*>(a.inside) + to + column, four);
          }
        }
      }
    }
  }
  if (!summarizes) return;
  const int64_t to =
      ((int64_t{s} * a.shape.heads + head) * a.shape.clusters + row.cluster) * a.row_pitch +
      first_column;
  if (count > 0) {
    summary.Write(a, shared, to, columns);
  } else if (static_cast<int>(threadIdx.x) < columns) {  // an empty cluster contributes nothing
    if (a.wide) {
      static_cast<float*>(a.summaries)[to + threadIdx.x] = 0;
    } else {
      static_cast<T*>(a.summaries)[to + threadIdx.x] = FromFloat<T>(0);
    }
  }
}

template <typename T, int kColumns>
cudaError_t Launch(const CastArgs& args, int64_t query_tiles, cudaStream_t stream) {
  const int64_t blocks = query_tiles * args.clusterings * args.shape.clusters;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks), args.shape.heads / args.clusterings,
                               (args.shape.value_dim + kColumns - 1) / kColumns),
                          dim3(kInsideThreads), sizeof(InsideShared<T, kColumns>)};
  return Launch(InsideKernel<T, kColumns>, shape, stream, args);
}

template <typename T>
cudaError_t Launch(const CastArgs& args, int64_t query_tiles, cudaStream_t stream) {
  return ForCastColumns<T>(
      args.shape, [&]<int kColumns>() { return Launch<T, kColumns>(args, query_tiles, stream); });
}

}  // namespace

cudaError_t RunCastInside(const CastArgs& args, int64_t query_tiles, cudaStream_t stream) {
  return ForElement(args.shape.element,
                    [&]<typename T>() { return Launch<T>(args, query_tiles, stream); });
}

}  // namespace castor::kernels::cuda
