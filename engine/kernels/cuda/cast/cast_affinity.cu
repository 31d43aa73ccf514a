// Steps 1 and 2 of CAST: how much each token belongs to each cluster.
//
// First the maximum and the sum of three softmaxes over the clusters, for each token and head: of
// query and key for the affinities, and of the gated query for the weights of step 6. Then the
// affinities: a block has some tokens and clusters, goes through the heads in ascending order, and
// writes A_g cluster-major, as the selection reads it. Both compute the products, so nothing of
// size N x N_c x heads exists. Laplace is elementwise and needs no sums.
//
// Cost a token-head at d = 64, bf16: twice 256 B of query and key, 8 N_c d flop; 4 N_c bytes a
// token. H=8: 4K x 16 clusters 2.0 us of bytes, 64K x 256 98 us of tensor core.

#include "engine/kernels/cuda/cast/cast_affinity.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kTokens = 64;      // of a block
constexpr int kRowWarps = 4;     // which have 16 tokens each
constexpr int kColumnWarps = 2;  // of the affinities; each has kWarpClusters
constexpr int kClusters = kColumnWarps * kWarpClusters;
constexpr int kSumsThreads = 32 * kRowWarps;
constexpr int kThreads = 32 * kRowWarps * kColumnWarps;

// grid (tiles of kTokens tokens, heads)
template <typename T, int kColumns>
__global__ void __launch_bounds__(kSumsThreads) SumsKernel(const CastArgs a) {
  const int s = FindSequence(a.tiles64, a.sequences, 1, blockIdx.x);
  const int first = (static_cast<int>(blockIdx.x) - a.tiles64[s]) * kTokens;
  const int left = a.tokens[s + 1] - a.tokens[s] - first;
  const int64_t token = a.tokens[s] + first;
  const int head = static_cast<int>(blockIdx.y);
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int g = threadIdx.x % 32 / 4;
  const int dim = a.shape.head_dim;

  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + g + 8 * r;
    factor[r] = row < left ? ScaleFactorOf(a, a.batch.gate[token + row]) : 1.0f;
  }
  RowSums sums[2];
  Tiles<T, kColumns> tiles(a, s, token, left, kTokens, kWarpClusters);
  for (int c0 = 0; c0 < a.shape.clusters; c0 += kWarpClusters) {
    const int valid = a.shape.clusters - c0;
    Products c;
    Clear(c);
    for (int e = 0; e < dim; e += kColumns) {
      __syncthreads();  // all reads of the tiles are done
      tiles.Load(head, e, c0, c0 == 0 || dim > kColumns);
      WaitCopies<0>();
      __syncthreads();
      tiles.Multiply(e, warp_row, 0, valid, c);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sums[r].Add(a, c, r, valid, factor[r]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sums[r].AddQuad(a, factor[r]);
    const int row = warp_row + g + 8 * r;
    if (threadIdx.x % 4 == 0 && row < left) {
      const int64_t at = (token + row) * a.shape.heads + head;
      a.affinity_stats[at] = sums[r].ForAffinities();
      a.weight_stats[at] = sums[r].ForWeights();
    }
  }
}

// grid (tiles of kTokens tokens, tiles of kClusters clusters, clusterings). SumsKernel has run,
// except for Laplace.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kThreads, 1) AffinityKernel(const CastArgs a) {
  const int s = FindSequence(a.tiles64, a.sequences, 1, blockIdx.x);
  const int first = (static_cast<int>(blockIdx.x) - a.tiles64[s]) * kTokens;
  const int tokens = a.tokens[s + 1] - a.tokens[s];
  const int left = tokens - first;
  const int64_t token = a.tokens[s] + first;
  const int first_cluster = static_cast<int>(blockIdx.y) * kClusters;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp % kRowWarps * 16;
  const int column = warp / kRowWarps * kWarpClusters;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int valid = a.shape.clusters - first_cluster - column;
  const int dim = a.shape.head_dim;

  float share[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + g + 8 * r;
    if (row < left) share[r] = Sigmoid(a.batch.gate[token + row]);
  }
  float affinity[kWarpClusters / 8][4];
#pragma unroll
  for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) affinity[n][i] = 0;
  }
  Tiles<T, kColumns> tiles(a, s, token, left, kTokens, kClusters);

  const int heads = a.shape.heads / a.clusterings;
  const int first_head = static_cast<int>(blockIdx.z) * heads;
  for (int head = first_head; head < first_head + heads; ++head) {
    Products c;
    Clear(c);
    for (int e = 0; e < dim; e += kColumns) {
      __syncthreads();  // all reads of the tiles are done
      tiles.Load(head, e, first_cluster, true);
      WaitCopies<0>();
      __syncthreads();
      tiles.Multiply(e, warp_row, column, valid, c);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_row + g + 8 * r;
      float4 stats = make_float4(0, 0, 0, 0);
      if (!a.shape.laplace && row < left) {
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
            const float magnitude = a.scale.magnitude;
            by_query = Exp2(magnitude * (c[0][n][i] * a.scale.sign - stats.x)) * stats.y;
            by_key = Exp2(magnitude * (c[1][n][i] * a.scale.sign - stats.z)) * stats.w;
          }
          affinity[n][i] += share[r] * by_query + (1 - share[r]) * by_key;
        }
      }
    }
  }
  // Eight rows of a column, neighbours in memory, are a sector.
  const int64_t cluster_rows = int64_t{a.clusterings} * a.shape.clusters;
  const int64_t base = a.tokens[s] * cluster_rows +
                       (int64_t{blockIdx.z} * a.shape.clusters + first_cluster + column) * tokens +
                       first;
#pragma unroll
  for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int cluster = 8 * n + 2 * t + i % 2;
      const int row = warp_row + g + i / 2 * 8;
      if (cluster < valid && row < left) {
        a.affinities[base + int64_t{cluster} * tokens + row] = affinity[n][i];
      }
    }
  }
}

template <typename T, int kColumns>
cudaError_t Launch(const CastArgs& args, int64_t tiles64, cudaStream_t stream) {
  using Shared = Tiles<T, kColumns>;
  const auto tiles = static_cast<unsigned>(tiles64);
  if (!args.shape.laplace) {
    const LaunchShape shape{dim3(tiles, static_cast<unsigned>(args.shape.heads)),
                            dim3(kSumsThreads),
                            static_cast<size_t>(Shared::Bytes(kTokens, kWarpClusters))};
    const cudaError_t error = Launch(SumsKernel<T, kColumns>, shape, stream, args);
    if (error != cudaSuccess) return error;
  }
  const LaunchShape shape{
      dim3(tiles, static_cast<unsigned>((args.shape.clusters + kClusters - 1) / kClusters),
           static_cast<unsigned>(args.clusterings)),
      dim3(kThreads), static_cast<size_t>(Shared::Bytes(kTokens, kClusters))};
  return Launch(AffinityKernel<T, kColumns>, shape, stream, args);
}

// fp32 tiles of 128 columns would be larger than some devices' shared memory.
template <typename T>
cudaError_t Launch(const CastArgs& args, int64_t tiles64, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (args.shape.head_dim > 64) return Launch<T, 128>(args, tiles64, stream);
  }
  return Launch<T, 64>(args, tiles64, stream);
}

}  // namespace

cudaError_t RunCastAffinities(const CastArgs& args, int64_t tiles64, cudaStream_t stream) {
  return ForElement(args.shape.element,
                    [&]<typename T>() { return Launch<T>(args, tiles64, stream); });
}

}  // namespace castor::kernels::cuda
