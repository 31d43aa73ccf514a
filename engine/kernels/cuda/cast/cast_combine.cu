// Step 6 of CAST: every token sees its own clusters from inside and the others by their summaries.
//
// The summaries' part is attention with the surrogates for keys and R_inter for values, with each
// token's own clusters masked out. The softmax's maximum and sum are known from the first stage, so
// the weights are final. Then the rows of `inside`, already weighted, are added in ascending order
// of clusters, which the membership words give. So there is no list per token, there are no
// atomics, and the sum does not depend on the schedule.
//
// R is fp32 and its product TF32 if fp16 cannot hold a Laplace summary, which is not normalised.
//
// Cost a token-head at d = 64, bf16: 128 B of query, 128 B written, 128 B for every cluster that
// holds the token, 4 N_c d flop. H=8: 4K x 16 clusters 2.9 us of bytes, 64K x 256 49 us of both.

#include <type_traits>

#include "engine/kernels/cuda/cast/cast_args.cuh"
#include "engine/kernels/cuda/cast/cast_math.cuh"
#include "engine/kernels/cuda/cast/cast_tile.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kClusters = 64;  // of a tile

template <typename T, typename R, int kColumns>
struct CombineShared {
  static constexpr int kRows = 64 * CastRowTiles(sizeof(R) == 4, kColumns);
  static constexpr int kStride = PairStride(kColumns);

  Pair<T> query[kRows * kStride];
  Pair<T> surrogate[kClusters * kStride];
  Pair<R> summary[kClusters * kStride];
};

// The weighted rows of the clusters that hold this warp's tokens, added in ascending order.
template <typename P, int kColumns, int kM>
__device__ __forceinline__ void AddInside(const CastArgs& a, const P* inside, int sequence,
                                          int clustering, int head_of_clustering,
                                          const Membership* words, int first_bit, int first_column,
                                          float (&o)[kM][kColumns / 8][4]) {
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int columns = a.shape.value_dim - first_column;
  const int heads = a.shape.heads / a.clusterings;
  const uint32_t mine = (kM == 2 ? 0xffffffffu : 0xffffu) << first_bit;
  for (int c0 = 0; c0 < a.shape.clusters; c0 += 32) {
    const Membership word = c0 + lane < a.shape.clusters ? words[c0 + lane] : make_uint2(0, 0);
    uint32_t holders = __ballot_sync(0xffffffffu, (word.x & mine) != 0);
    while (holders != 0) {
      const int from = __ffs(static_cast<int>(holders)) - 1;
      holders &= holders - 1;
      const uint32_t bits = __shfl_sync(0xffffffffu, word.x, from);
      const uint32_t before = __shfl_sync(0xffffffffu, word.y, from);
      const CastRow row = RowOf(a, sequence, clustering, c0 + from);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int bit = first_bit + 16 * m + 8 * r + g;
          if ((bits >> bit & 1) == 0) continue;
          const int64_t slot = row.slot + before + __popc(bits & ((1u << bit) - 1));
          const P* const at =
              inside + (slot * heads + head_of_clustering) * a.row_pitch + first_column + 4 * t;
#pragma unroll
          for (int j = 0; j < kColumns / 16; ++j) {
            if (16 * j + 4 * t >= columns) continue;
            const float4 x = LoadFour(at + 16 * j);
            o[m][2 * j][2 * r] += x.x;
            o[m][2 * j + 1][2 * r] += x.y;
            o[m][2 * j][2 * r + 1] += x.z;
            o[m][2 * j + 1][2 * r + 1] += x.w;
          }
        }
      }
    }
  }
}

// grid (tiles of 64 or 128 tokens, heads, pieces of value_dim), block kThreads
template <typename T, typename R, int kColumns>
__global__ void __launch_bounds__(kThreads) CombineKernel(const CastArgs a) {
  using Shared = CombineShared<T, R, kColumns>;
  constexpr int kStride = Shared::kStride;
  constexpr int kM = CastRowTiles(sizeof(R) == 4, kColumns);
  Shared& shared = *DynamicShared<Shared>();

  const int32_t* const tiles = kM == 2 ? a.tiles128 : a.tiles64;
  const int s = FindSequence(tiles, a.sequences, 1, blockIdx.x);
  const int first = (static_cast<int>(blockIdx.x) - tiles[s]) * Shared::kRows;
  const int left = a.tokens[s + 1] - a.tokens[s] - first;
  const int64_t token = a.tokens[s] + first;
  const int head = static_cast<int>(blockIdx.y);
  const int heads = a.shape.heads / a.clusterings;
  const int clustering = head / heads;
  const int first_column = static_cast<int>(blockIdx.z) * kColumns;
  const int columns = min(kColumns, a.shape.value_dim - first_column);
  const int dim = a.shape.head_dim;
  const int clusters = a.shape.clusters;

  const T* const query =
      static_cast<const T*>(a.batch.query) + token * a.batch.query_stride + int64_t{head} * dim;
  const int64_t surrogate_stride = int64_t{a.shape.heads} * dim;
  const T* const surrogates = static_cast<const T*>(a.batch.surrogates) +
                              (int64_t{a.layer[s]} * clusters * a.shape.heads + head) * dim;
  const R* const summaries = static_cast<const R*>(a.summaries) +
                             (int64_t{s} * a.shape.heads + head) * clusters * a.row_pitch +
                             first_column;

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kM;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const bool warp_works = warp_row < left;
  // A warp's rows lie in one membership word.
  const int first_bit = (first + warp_row) % 32;
  const Membership* const words =
      a.membership + (int64_t{a.tiles32[s]} + (first + warp_row) / 32) * a.clusterings * clusters +
      int64_t{clustering} * clusters;

  float factor[kM][2];
  float2 stats[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_row + 16 * m + 8 * r + g;
      factor[m][r] = 1;
      stats[m][r] = make_float2(0, 0);
      if (row >= left) continue;
      const float phi = a.batch.gate[token + row];
      factor[m][r] = a.shape.laplace ? LaplaceFactorOf(a, phi) : ScaleFactorOf(a, phi);
      if (!a.shape.laplace) stats[m][r] = a.weight_stats[(token + row) * a.shape.heads + head];
    }
  }

  float o[kM][kColumns / 8][4];
  Clear(o);

  for (int c0 = 0; c0 < clusters; c0 += kClusters) {
    const int valid = clusters - c0;
    float c[kM][kClusters / 8][4];
    Clear(c);
    for (int e = 0; e < dim; e += kColumns) {
      const int width = min(kColumns, dim - e);
      __syncthreads();  // the tiles before have been read
      if (c0 == 0 || dim > kColumns) {
        LoadTile<T, kColumns>(shared.query, Shared::kRows, width, a.vector_query,
                              StridedRows<T>{query, a.batch.query_stride, 0, left, e});
      }
      LoadTile<T, kColumns>(shared.surrogate, kClusters, width, a.vector_surrogates,
                            StridedRows<T>{surrogates, surrogate_stride, c0, clusters, e});
      if (e == 0) {
        // Rows are padded to 16 bytes. The padding ends in columns that are not stored.
        LoadTile<R, kColumns>(shared.summary, kClusters, min(kColumns, a.row_pitch - first_column),
                              true, StridedRows<R>{summaries, a.row_pitch, c0, clusters});
      }
      CommitCopies();
      WaitCopies<0>();
      __syncthreads();
      if (warp_works) {
        MultiplyRows<T, kStride, kM, kClusters / 8>(c, shared.query + warp_row * kStride,
                                                    16 * kStride, shared.surrogate,
                                                    (width + 15) / 16, valid);
      }
    }
    if (!warp_works) continue;
    uint32_t bits[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bits[i] = lane + 32 * i < valid ? words[c0 + lane + 32 * i].x : 0;
    }
#pragma unroll
    for (int n = 0; n < kClusters / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = 8 * n + 2 * t + i;
        const uint32_t holds = __shfl_sync(0xffffffffu, bits[n / 4], column % 32);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float& x = c[m][n][2 * r + i];
            const bool own = (holds >> (first_bit + 16 * m + 8 * r + g) & 1) != 0;
            if (own || column >= valid) {
              x = 0;
            } else if (a.shape.laplace) {
              x = Laplace(x * factor[m][r]);
            } else {
              x = Exp2(factor[m][r] * (x * a.scale.sign - stats[m][r].x)) * stats[m][r].y;
            }
          }
        }
      }
    }
    MultiplyWeights<R, kColumns, kM, kClusters / 8>(o, c, shared.summary, valid);
  }
  if (!warp_works) return;

  const int head_of_clustering = head % heads;
  if (a.wide) {
    AddInside<float, kColumns, kM>(a, static_cast<const float*>(a.inside), s, clustering,
                                   head_of_clustering, words, first_bit, first_column, o);
  } else {
    AddInside<T, kColumns, kM>(a, static_cast<const T*>(a.inside), s, clustering,
                               head_of_clustering, words, first_bit, first_column, o);
  }

#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_row + 16 * m + 8 * r + g;
      if (row >= left) continue;
      T* const to = static_cast<T*>(a.batch.output) + (token + row) * a.batch.output_stride +
                    int64_t{head} * a.shape.value_dim + first_column;
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        const int column = 16 * j + 4 * t;
        const float4 four = FourOf(o[m], r, j);
        if (a.vector_output) {
          if (column < columns) StoreFour(to + column, four);
          continue;
        }
        const float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (column + i < columns) to[column + i] = FromFloat<T>(x[i]);
        }
      }
    }
  }
}

template <typename T, typename R, int kColumns>
cudaError_t Launch(const CastArgs& args, int64_t tiles64, int64_t tiles128, cudaStream_t stream) {
  using Shared = CombineShared<T, R, kColumns>;
  const LaunchShape shape{dim3(Shared::kRows == 128 ? tiles128 : tiles64, args.shape.heads,
                               (args.shape.value_dim + kColumns - 1) / kColumns),
                          dim3(kThreads), sizeof(Shared)};
  return Launch(CombineKernel<T, R, kColumns>, shape, stream, args);
}

template <typename T, typename R>
cudaError_t Launch(const CastArgs& args, int64_t tiles64, int64_t tiles128, cudaStream_t stream) {
  return ForCastColumns<T>(args.shape, [&]<int kColumns>() {
    return Launch<T, R, kColumns>(args, tiles64, tiles128, stream);
  });
}

}  // namespace

cudaError_t RunCastCombine(const CastArgs& args, int64_t tiles64, int64_t tiles128,
                           cudaStream_t stream) {
  return ForElement(args.shape.element, [&]<typename T>() {
    if constexpr (std::is_same_v<T, __half>) {
      if (args.wide) return Launch<T, float>(args, tiles64, tiles128, stream);
    }
    return Launch<T, T>(args, tiles64, tiles128, stream);
  });
}

}  // namespace castor::kernels::cuda
