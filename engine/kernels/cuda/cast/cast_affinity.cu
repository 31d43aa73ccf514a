// Steps 1 and 2 of CAST: how much each token belongs to each cluster.
//
// A block has some tokens. It goes through the heads in ascending order while the next head's tiles
// are being copied, and writes A_g cluster-major, as the selection reads it. With up to 256
// clusters, a block's warps hold all scores of a token and head in registers. They agree on the
// maximum and the sum of three softmaxes: of query and key for the affinities, and of the gated
// query for the weights of step 6, which later stages use. With more clusters, a first pass finds
// these, and a second computes the products again. Nothing of size N x N_c x heads exists either
// way. Laplace is elementwise and needs no sums.
//
// Cost a token-head at d = 64, bf16: 256 B of query and key, 4 N_c d flop; 4 N_c bytes a token.
// H=8: 4K x 16 clusters 1.0 us of bytes, 64K x 256 49 us of tensor core; surrogates from L2, N_c d
// elements for every 32 tokens, 130 us at 64K x 256 and 5 TB/s, under the products.

#include "engine/kernels/cuda/cast/cast_affinity.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kOnePassWarps = 4;       // side by side, so up to 256 clusters in one pass
constexpr int kTwoBuffers = 96 << 10;  // bytes up to which tiles are loaded ahead

constexpr int kSumsRows = 64;
constexpr int kSumsThreads = 128;

// grid (tiles of 64 tokens, heads), block kSumsThreads
template <typename T, int kColumns>
__global__ void __launch_bounds__(kSumsThreads) SumsKernel(const CastArgs a) {
  const int s = FindSequence(a.tiles64, a.sequences, 1, blockIdx.x);
  const int first = (static_cast<int>(blockIdx.x) - a.tiles64[s]) * kSumsRows;
  const int left = a.tokens[s + 1] - a.tokens[s] - first;
  const int64_t token = a.tokens[s] + first;
  const int head = static_cast<int>(blockIdx.y);
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int g = threadIdx.x % 32 / 4;
  const int dim = a.shape.head_dim;

  float stretch[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + g + 8 * r;
    stretch[r] = row < left ? StretchOf(a, a.batch.gate[token + row]) : 1.0f;
  }
  RowSums sums[2];
  Tiles<T, kColumns> tiles(a, s, token, left, kSumsRows, kWarpClusters);
  for (int c0 = 0; c0 < a.shape.clusters; c0 += kWarpClusters) {
    const int valid = a.shape.clusters - c0;
    Products c;
    Clear(c);
    for (int e = 0; e < dim; e += kColumns) {
      __syncthreads();  // all reads of the tiles are done
      tiles.Load(0, head, e, c0, c0 == 0 || dim > kColumns);
      WaitCopies<0>();
      __syncthreads();
      tiles.Multiply(0, e, warp_row, 0, valid, c);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sums[r].Add(a, c, r, valid, stretch[r]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sums[r].AddQuad(a, stretch[r]);
    const int row = warp_row + g + 8 * r;
    if (threadIdx.x % 4 == 0 && row < left) {
      const int64_t at = (token + row) * a.shape.heads + head;
      a.affinity_stats[at] = sums[r].ForAffinities();
      a.weight_stats[at] = sums[r].ForWeights();
    }
  }
}

// A block's warps: `rows` times 16 tokens, `columns` times 64 clusters.
struct Warps {
  int rows;
  int columns;
  bool one_pass;  // all clusters are the block's; else SumsKernel has run
  int buffers;    // of tiles: 2 load a step ahead
};

// grid (tiles of 16 * warps.rows tokens, tiles of 64 * warps.columns clusters, clusterings)
template <typename T, int kColumns>
__global__ void __launch_bounds__(256) AffinityKernel(const CastArgs a, const Warps warps) {
  const int rows = 16 * warps.rows;
  const int columns = kWarpClusters * warps.columns;
  const int32_t* const tiles_before = rows == 32 ? a.tiles32 : a.tiles64;
  const int s = FindSequence(tiles_before, a.sequences, 1, blockIdx.x);
  const int first = (static_cast<int>(blockIdx.x) - tiles_before[s]) * rows;
  const int tokens = a.tokens[s + 1] - a.tokens[s];
  const int left = tokens - first;
  const int64_t token = a.tokens[s] + first;
  const int first_cluster = static_cast<int>(blockIdx.y) * columns;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp % warps.rows * 16;
  const int warp_column = warp / warps.rows;
  const int column = warp_column * kWarpClusters;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int valid = a.shape.clusters - first_cluster - column;
  const int dim = a.shape.head_dim;

  float share[2] = {0, 0};
  float stretch[2] = {1, 1};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + g + 8 * r;
    if (row >= left) continue;
    share[r] = Sigmoid(a.batch.gate[token + row]);
    stretch[r] = StretchOf(a, a.batch.gate[token + row]);
  }
  float affinity[kWarpClusters / 8][4];
#pragma unroll
  for (int n = 0; n < kWarpClusters / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) affinity[n][i] = 0;
  }
  Tiles<T, kColumns> tiles(a, s, token, left, rows, columns);
  // After the tiles: the warps' sums, [rows, warps.columns].
  RowSums* const shared_sums = reinterpret_cast<RowSums*>(
      DynamicShared<char>() + warps.buffers * Tiles<T, kColumns>::Bytes(rows, columns));

  const int heads = a.shape.heads / a.clusterings;
  const int first_head = static_cast<int>(blockIdx.z) * heads;
  const int pieces = (dim + kColumns - 1) / kColumns;
  Products c;
  Clear(c);
  const auto load = [&](int step) {
    tiles.Load(step % warps.buffers, first_head + step / pieces, step % pieces * kColumns,
               first_cluster, true);
  };
  load(0);
  for (int step = 0; step < heads * pieces; ++step) {
    if (warps.buffers == 1 && step > 0) {
      __syncthreads();  // the step before has been read
      load(step);
    }
    WaitCopies<0>();
    __syncthreads();  // this step's tiles are there; with two, the other has been read
    if (warps.buffers == 2 && step + 1 < heads * pieces) load(step + 1);
    tiles.Multiply(step % warps.buffers, step % pieces * kColumns, warp_row, column, valid, c);
    if (step % pieces + 1 < pieces) continue;

    const int head = first_head + step / pieces;
    RowSums sums[2];
    if (!a.shape.laplace && warps.one_pass) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        sums[r].Add(a, c, r, valid, stretch[r]);
        sums[r].AddQuad(a, stretch[r]);
        if (t == 0) shared_sums[(warp_row + g + 8 * r) * warps.columns + warp_column] = sums[r];
      }
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_row + g + 8 * r;
      const int64_t at = (token + row) * a.shape.heads + head;
      float4 stats = make_float4(0, 0, 0, 0);
      if (a.shape.laplace) {
        // Nothing to normalise by.
      } else if (warps.one_pass) {
        RowSums all = shared_sums[row * warps.columns];
        for (int w = 1; w < warps.columns; ++w) {
          all.AddOther(a, shared_sums[row * warps.columns + w], stretch[r]);
        }
        stats = all.ForAffinities();
        if (t == 0 && warp_column == 0 && row < left) a.weight_stats[at] = all.ForWeights();
      } else if (row < left) {
        stats = a.affinity_stats[at];
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
    Clear(c);
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
cudaError_t Launch(const CastArgs& args, int64_t tiles32, int64_t tiles64, cudaStream_t stream) {
  using Shared = Tiles<T, kColumns>;
  // The choice depends on the clusters alone, so a sequence's sums do not depend on its batch.
  const int wide = (args.shape.clusters + kWarpClusters - 1) / kWarpClusters;
  Warps warps = wide <= kOnePassWarps ? Warps{2, wide, true, 1} : Warps{4, 2, false, 1};
  const bool sums_first = !args.shape.laplace && !warps.one_pass;
  if (sums_first) {
    const LaunchShape shape{
        dim3(static_cast<unsigned>(tiles64), static_cast<unsigned>(args.shape.heads)),
        dim3(kSumsThreads), static_cast<size_t>(Shared::Bytes(kSumsRows, kWarpClusters))};
    const cudaError_t error = Launch(SumsKernel<T, kColumns>, shape, stream, args);
    if (error != cudaSuccess) return error;
  }
  const int rows = 16 * warps.rows;
  const int columns = kWarpClusters * warps.columns;
  const int bytes = Shared::Bytes(rows, columns);
  if (2 * bytes <= kTwoBuffers) warps.buffers = 2;
  const LaunchShape shape{dim3(static_cast<unsigned>(rows == 32 ? tiles32 : tiles64),
                               static_cast<unsigned>((args.shape.clusters + columns - 1) / columns),
                               static_cast<unsigned>(args.clusterings)),
                          dim3(32u * warps.rows * warps.columns),
                          warps.buffers * bytes + rows * warps.columns * sizeof(RowSums)};
  return Launch(AffinityKernel<T, kColumns>, shape, stream, args, warps);
}

// fp32 tiles of 128 columns would be larger than some devices' shared memory.
template <typename T>
cudaError_t Launch(const CastArgs& args, int64_t tiles32, int64_t tiles64, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (args.shape.head_dim > 64) return Launch<T, 128>(args, tiles32, tiles64, stream);
  }
  return Launch<T, 64>(args, tiles32, tiles64, stream);
}

}  // namespace

cudaError_t RunCastAffinities(const CastArgs& args, int64_t tiles32, int64_t tiles64,
                              cudaStream_t stream) {
  return ForElement(args.shape.element,
                    [&]<typename T>() { return Launch<T>(args, tiles32, tiles64, stream); });
}

}  // namespace castor::kernels::cuda
