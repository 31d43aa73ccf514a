// Steps 1 and 2 of CAST: how much each token belongs to each cluster.
//
// Two passes over the products with the surrogates. The first keeps, for every token and head, the
// maximum and the sum of three softmaxes over the clusters: of query and key for the affinities,
// and of the gated query for the weights of step 6. The second has all heads of a tile of tokens in
// one block, in ascending order, and writes A_g cluster-major, as the selection reads it. Products
// are made twice, and in exchange nothing of size N x N_c x heads exists and N_c is not bounded by
// shared memory. Laplace, elementwise, needs no first pass.
//
// Cost a token-head at d = 64, bf16, a pass: 256 B of query and key, 4 N_c d flop; the second pass
// adds 4 N_c bytes a token. H=8: 4K x 16 clusters 1.0 us of bytes each pass, 64K x 256 49 us of
// tensor core each pass.

#include <algorithm>

#include "engine/kernels/cuda/cast_args.cuh"
#include "engine/kernels/cuda/cast_math.cuh"
#include "engine/kernels/cuda/cast_tile.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kWarpClusters = 64;  // columns of a warp, whose rows are 16 tokens

// The products q s and k s of `rows` tokens of one head with `columns` clusters: c[0] and c[1].
template <typename T, int kColumns>
class SurrogateProducts {
 public:
  static constexpr int kStride = PairStride(kColumns);

  // `rows` tokens from `token` on, of `left` that the sequence still has.
  __device__ SurrogateProducts(const CastArgs& args, int sequence, int64_t token, int left,
                               int rows)
      : a_(args),
        surrogates_(static_cast<const T*>(args.batch.surrogates) +
                    int64_t{args.layer[sequence]} * args.shape.clusters * args.shape.heads *
                        args.shape.head_dim),
        token_(token),
        left_(left),
        rows_(rows),
        queries_(DynamicShared<Pair<T>>()),
        keys_(queries_ + rows * kStride),
        clusters_(keys_ + rows * kStride) {}

  // For the warp's 16 rows from `row` and 64 clusters from `first + column` on. All threads call it
  // alike; `fresh` where the tokens or the head are others than in the call before.
  __device__ void Multiply(int head, int first, int columns, bool fresh, int row, int column,
                           float (&c)[2][kWarpClusters / 8][4]) {
    const int dim = a_.shape.head_dim;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
      }
    }
    for (int e = 0; e < dim; e += kColumns) {
      const int width = min(kColumns, dim - e);
      const int64_t at = int64_t{head} * dim + e;
      __syncthreads();  // whoever read the tiles is done
      if (fresh || dim > kColumns) {
        const auto load = [&](Pair<T>* tile, const void* data, int64_t stride, bool vector) {
          const T* const base = static_cast<const T*>(data) + token_ * stride + at;
          LoadTile<T, kColumns>(tile, rows_, width, vector, [&](int r) -> const T* {
            return r < left_ ? base + r * stride : nullptr;
          });
        };
        load(queries_, a_.batch.query, a_.batch.query_stride, a_.vector_query);
        load(keys_, a_.batch.key, a_.batch.key_stride, a_.vector_key);
      }
      const int64_t stride = int64_t{a_.shape.heads} * dim;
      const T* const base = surrogates_ + first * stride + at;
      LoadTile<T, kColumns>(clusters_, columns, width, a_.vector_surrogates,
                            [&](int r) -> const T* {
                              return first + r < a_.shape.clusters ? base + r * stride : nullptr;
                            });
      CommitCopies();
      WaitCopies<0>();
      __syncthreads();
      MultiplyRows<T, kStride, 2, kWarpClusters / 8>(
          c, queries_ + row * kStride, rows_ * kStride, clusters_ + column * kStride,
          (width + 15) / 16, a_.shape.clusters - first - column);
    }
  }

  static int SharedBytes(int rows, int columns) {
    return TileBytes<T>(2 * rows + columns, kColumns);
  }

 private:
  const CastArgs& a_;
  const T* const surrogates_;
  const int64_t token_;
  const int left_;
  const int rows_;
  Pair<T>* const queries_;
  Pair<T>* const keys_;
  Pair<T>* const clusters_;
};

constexpr int kStatsRows = 64;
constexpr int kStatsThreads = 128;

// grid (tiles of 64 tokens, heads), block kStatsThreads
template <typename T, int kColumns>
__global__ void __launch_bounds__(kStatsThreads) StatsKernel(const CastArgs a) {
  const int s = FindSequence(a.tiles64, a.sequences, 1, blockIdx.x);
  const int first = (static_cast<int>(blockIdx.x) - a.tiles64[s]) * kStatsRows;
  const int left = a.tokens[s + 1] - a.tokens[s] - first;
  const int64_t token = a.tokens[s] + first;
  const int head = static_cast<int>(blockIdx.y);
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;

  float temperature[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + g + 8 * r;
    temperature[r] = row < left ? GateTemperature(a.shape.gated, a.batch.gate[token + row]) : 1.0f;
  }
  SoftmaxSum query[2], key[2];
  float weight_sum[2] = {0, 0};  // against query's max
  SurrogateProducts<T, kColumns> products(a, s, token, left, kStatsRows);
  float c[2][kWarpClusters / 8][4];
  for (int c0 = 0; c0 < a.shape.clusters; c0 += kWarpClusters) {
    products.Multiply(head, c0, kWarpClusters, c0 == 0, warp_row, 0, c);
    const int valid = a.shape.clusters - c0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float query_max = query[r].max;
      float key_max = key[r].max;
#pragma unroll
      for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * n + 2 * t + i >= valid) continue;
          query_max = fmaxf(query_max, c[0][n][2 * r + i] * a.scale_log2);
          key_max = fmaxf(key_max, c[1][n][2 * r + i] * a.scale_log2);
        }
      }
      query[r].sum = Rescaled(query[r].sum, query[r].max, query_max, 1);
      weight_sum[r] = Rescaled(weight_sum[r], query[r].max, query_max, temperature[r]);
      key[r].sum = Rescaled(key[r].sum, key[r].max, key_max, 1);
      query[r].max = query_max;
      key[r].max = key_max;
#pragma unroll
      for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * n + 2 * t + i >= valid) continue;
          const float x = c[0][n][2 * r + i] * a.scale_log2 - query_max;
          query[r].sum += Exp2(x);
          weight_sum[r] += Exp2(temperature[r] * x);
          key[r].sum += Exp2(c[1][n][2 * r + i] * a.scale_log2 - key_max);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float query_max = QuadMax(query[r].max);
    const float key_max = QuadMax(key[r].max);
    const float query_sum = QuadSum(Rescaled(query[r].sum, query[r].max, query_max, 1));
    const float weights = QuadSum(Rescaled(weight_sum[r], query[r].max, query_max, temperature[r]));
    const float key_sum = QuadSum(Rescaled(key[r].sum, key[r].max, key_max, 1));
    const int row = warp_row + g + 8 * r;
    if (t == 0 && row < left) {
      const int64_t at = (token + row) * a.shape.heads + head;
      a.affinity_stats[at] = make_float4(query_max, 1 / query_sum, key_max, 1 / key_sum);
      a.weight_stats[at] = make_float2(query_max, 1 / weights);
    }
  }
}

// A block's warps: `rows` times 16 tokens, `columns` times 64 clusters. An element's sum is the
// same in any shape.
struct Warps {
  int rows;
  int columns;
};

// grid (tiles of 16 * warps.rows tokens, tiles of 64 * warps.columns clusters, clusterings)
template <typename T, int kColumns>
__global__ void __launch_bounds__(256) AffinityKernel(const CastArgs a, const Warps warps) {
  const int rows = 16 * warps.rows;
  const int32_t* const tiles = rows == 32 ? a.tiles32 : a.tiles64;
  const int s = FindSequence(tiles, a.sequences, 1, blockIdx.x);
  const int first = (static_cast<int>(blockIdx.x) - tiles[s]) * rows;
  const int tokens = a.tokens[s + 1] - a.tokens[s];
  const int64_t token = a.tokens[s] + first;
  const int first_cluster = static_cast<int>(blockIdx.y) * kWarpClusters * warps.columns;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp % warps.rows * 16;
  const int warp_column = warp / warps.rows * kWarpClusters;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int valid = a.shape.clusters - first_cluster - warp_column;

  float share[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + g + 8 * r;
    if (first + row < tokens) share[r] = Sigmoid(a.batch.gate[token + row]);
  }
  float sum[kWarpClusters / 8][4];
#pragma unroll
  for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[n][i] = 0;
  }
  SurrogateProducts<T, kColumns> products(a, s, token, tokens - first, rows);
  const int heads = a.shape.heads / a.clusterings;
  const int first_head = static_cast<int>(blockIdx.z) * heads;
  float c[2][kWarpClusters / 8][4];
  for (int head = first_head; head < first_head + heads; ++head) {
    products.Multiply(head, first_cluster, kWarpClusters * warps.columns, true, warp_row,
                      warp_column, c);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_row + g + 8 * r;
      float4 stats = make_float4(0, 0, 0, 0);
      if (!a.shape.laplace && first + row < tokens) {
        stats = a.affinity_stats[(token + row) * a.shape.heads + head];
      }
#pragma unroll
      for (int n = 0; n < kWarpClusters / 8; ++n) {
        if (8 * n >= valid) continue;
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          float by_query, by_key;
          if (a.shape.laplace) {
            by_query = Laplace(c[0][n][i] * a.shape.scale);
            by_key = Laplace(c[1][n][i] * a.shape.scale);
          } else {
            by_query = Exp2(c[0][n][i] * a.scale_log2 - stats.x) * stats.y;
            by_key = Exp2(c[1][n][i] * a.scale_log2 - stats.z) * stats.w;
          }
          sum[n][i] += share[r] * by_query + (1 - share[r]) * by_key;
        }
      }
    }
  }
  // Eight rows of a column, neighbours in memory, are a sector.
  const int64_t cluster_rows = int64_t{a.clusterings} * a.shape.clusters;
  const int64_t base =
      a.tokens[s] * cluster_rows +
      (int64_t{blockIdx.z} * a.shape.clusters + first_cluster + warp_column) * tokens + first;
#pragma unroll
  for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * n + 2 * t + i % 2;
      const int row = warp_row + g + i / 2 * 8;
      if (column < valid && first + row < tokens) {
        a.affinities[base + int64_t{column} * tokens + row] = sum[n][i];
      }
    }
  }
}

template <typename T, int kColumns>
cudaError_t Launch(const CastArgs& args, int64_t tiles32, int64_t tiles64, cudaStream_t stream) {
  using Products = SurrogateProducts<T, kColumns>;
  if (!args.shape.laplace) {
    const size_t shared = Products::SharedBytes(kStatsRows, kWarpClusters);
    const LaunchShape shape{dim3(tiles64, args.shape.heads), dim3(kStatsThreads), shared};
    const cudaError_t error = Launch(StatsKernel<T, kColumns>, shape, stream, args);
    if (error != cudaSuccess) return error;
  }
  // Few clusters mean short sequences: small blocks, so that there are enough of them.
  const Warps warps = args.shape.clusters <= kWarpClusters ? Warps{2, 1} : Warps{4, 2};
  const int clusters = kWarpClusters * warps.columns;
  const size_t shared = Products::SharedBytes(16 * warps.rows, clusters);
  const LaunchShape shape{dim3(warps.rows == 2 ? tiles32 : tiles64,
                               (args.shape.clusters + clusters - 1) / clusters, args.clusterings),
                          dim3(32 * warps.rows * warps.columns), shared};
  return Launch(AffinityKernel<T, kColumns>, shape, stream, args, warps);
}

template <typename T>
cudaError_t Launch(const CastArgs& args, int64_t tiles32, int64_t tiles64, cudaStream_t stream) {
  return args.shape.head_dim <= 64 ? Launch<T, 64>(args, tiles32, tiles64, stream)
                                   : Launch<T, 128>(args, tiles32, tiles64, stream);
}

}  // namespace

cudaError_t RunCastAffinities(const CastArgs& args, int64_t tiles32, int64_t tiles64,
                              cudaStream_t stream) {
  switch (args.shape.element) {
    case Element::kFloat32:
      return Launch<float>(args, tiles32, tiles64, stream);
    case Element::kFloat16:
      return Launch<__half>(args, tiles32, tiles64, stream);
    case Element::kBFloat16:
      return Launch<__nv_bfloat16>(args, tiles32, tiles64, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace castor::kernels::cuda
