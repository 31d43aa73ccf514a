// Steps 4 and 5 of CAST: attention inside the clusters, and their summaries.
//
// A block has some queries of one cluster and one head and goes through the cluster's keys in tiles
// of 64 with an online softmax, gathering all rows by the members' list; a row is one line of 128
// bytes at d = 64, so gathering costs what streaming does. It writes its rows times alpha, the
// weight with which their token sees this cluster, so that the combination only adds. The first
// block of each cluster and head also carries the summary, one more query with a temperature of its
// own for every key, along on the plain units while the tiles are in shared memory.
//
// Cost a slot-head at d = 64, bf16: 384 B gathered, keys and values again from L2 for every further
// 128 queries, 128 B written, 4 kappa d flop. 64K tokens, 8 heads, kappa = 256: 62 us of bytes.

#include "engine/kernels/cuda/cast_args.cuh"
#include "engine/kernels/cuda/cast_math.cuh"
#include "engine/kernels/cuda/cast_tile.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kKeys = 64;  // of a tile

template <typename T, int kColumns>
struct InsideShared {
  static constexpr int kRows = 64 * CastRowTiles(sizeof(T) == 4, kColumns);
  static constexpr int kStride = PairStride(kColumns);

  Pair<T> query[kRows * kStride];
  Pair<T> key[kKeys * kStride];
  Pair<T> value[kKeys * kStride];
  float surrogate[kColumns];
  float scores[kKeys];   // the summary's, base 2; for Laplace its weights
  float weights[kKeys];  // 2^(score - max)
  float partial[kThreads];
  float partial_sum[kThreads];
};

// The summary of a cluster for one head: every thread carries one column over a part of the keys.
template <typename T, int kColumns>
class Summary {
 public:
  using Shared = InsideShared<T, kColumns>;

  // Adds this piece of the products with the surrogate; two threads a key.
  __device__ void Multiply(const Shared& shared) {
    const Pair<T>* const row = shared.key + threadIdx.x / 2 * Shared::kStride;
    const int half = threadIdx.x % 2 * (kColumns / 4);
#pragma unroll 8
    for (int p = half; p < half + kColumns / 4; ++p) {
      const float2 key = Unpair<T>(row[p]);
      product_ += key.x * shared.surrogate[2 * p] + key.y * shared.surrogate[2 * p + 1];
    }
  }

  // Shares the tile's scores with the block; a barrier follows.
  __device__ void Score(const CastArgs& a, Shared& shared, const int32_t* members, int64_t token,
                        int left) {
    const int key = static_cast<int>(threadIdx.x) / 2;
    const float product = product_ + __shfl_xor_sync(0xffffffffu, product_, 1);
    product_ = 0;
    float score = a.shape.laplace ? 0 : -INFINITY;
    if (key < left) {
      const float phi = a.batch.gate[token + members[key]];
      const float stretched = product * GateTemperature(a.shape.gated, -phi);
      score = a.shape.laplace ? Laplace(stretched * a.shape.scale) : stretched * a.scale_log2;
    }
    if (threadIdx.x % 2 == 0) shared.scores[key] = score;
  }

  // Adds the tile's values. All threads; the values and scores are there.
  __device__ void Add(const CastArgs& a, Shared& shared, int left) {
    constexpr int kPart = kKeys / kParts;
    if (a.shape.laplace) {
      if (threadIdx.x < kKeys) shared.weights[threadIdx.x] = shared.scores[threadIdx.x];
    } else {
      const int lane = threadIdx.x % 32;
      float max = fmaxf(shared.scores[lane], shared.scores[lane + 32]);
#pragma unroll
      for (int bits = 16; bits > 0; bits /= 2) {
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, bits));
      }
      max = fmaxf(max, max_);
      value_ = Rescaled(value_, max_, max, 1);
      sum_ = Rescaled(sum_, max_, max, 1);
      max_ = max;
      if (threadIdx.x < kKeys) shared.weights[threadIdx.x] = Exp2(shared.scores[threadIdx.x] - max);
    }
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x) % kColumns;
    const int part = static_cast<int>(threadIdx.x) / kColumns;
    if (part >= kParts) return;
    const int end = min(left, (part + 1) * kPart);
    for (int key = part * kPart; key < end; ++key) {
      const float weight = shared.weights[key];
      const T* const row = reinterpret_cast<const T*>(shared.value + key * Shared::kStride);
      value_ += weight * ToFloat(row[column]);
      sum_ += weight;
    }
  }

  // Writes the row, [columns], as fp32 or in the element type.
  __device__ void Write(const CastArgs& a, Shared& shared, int64_t at, int columns) {
    shared.partial[threadIdx.x] = value_;
    shared.partial_sum[threadIdx.x] = sum_;
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x);
    if (column >= kColumns || column >= columns) return;
    float value = 0;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      value += shared.partial[part * kColumns + column];
      sum += shared.partial_sum[part * kColumns + column];
    }
    if (!a.shape.laplace) value /= sum;
    if (a.wide) {
      static_cast<float*>(a.summaries)[at + column] = value;
    } else {
      static_cast<T*>(a.summaries)[at + column] = FromFloat<T>(value);
    }
  }

 private:
  static constexpr int kParts = kThreads / kColumns;

  float product_ = 0;
  float max_ = -INFINITY;
  float value_ = 0;
  float sum_ = 0;
};

// grid (query tiles of all rows, heads of a clustering, pieces of value_dim), block kThreads
template <typename T, int kColumns>
__global__ void __launch_bounds__(kThreads) InsideKernel(const CastArgs a) {
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
  const int64_t head_at = int64_t{head} * dim;
  const T* const query =
      static_cast<const T*>(a.batch.query) + token * a.batch.query_stride + head_at;
  const T* const key = static_cast<const T*>(a.batch.key) + token * a.batch.key_stride + head_at;
  const T* const value = static_cast<const T*>(a.batch.value) + token * a.batch.value_stride +
                         int64_t{head} * a.shape.value_dim + first_column;
  const T* const surrogate =
      static_cast<const T*>(a.batch.surrogates) +
      ((int64_t{a.layer[s]} * a.shape.clusters + row.cluster) * a.shape.heads + head) * dim;

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kM;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const bool warp_works = first + warp_row < count;

  float o[kM][kColumns / 8][4];
  float max[kM][2], sum[kM][2], alpha[kM][2];  // of rows g and g + 8; sum and alpha of this lane
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[m][n][i] = 0;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      max[m][r] = -INFINITY;
      sum[m][r] = alpha[m][r] = 0;
    }
  }
  Summary<T, kColumns> summary;

  const auto load_keys = [&](int tile, int e) {
    const int width = min(kColumns, dim - e);
    LoadTile<T, kColumns>(shared.key, kKeys, width, a.vector_key, [&](int r) -> const T* {
      const int at = tile + r;
      return at < count ? key + members[at] * a.batch.key_stride + e : nullptr;
    });
    if (tile == 0 || dim > kColumns) {
      LoadTile<T, kColumns>(
          shared.query, Shared::kRows, width, a.vector_query, [&](int r) -> const T* {
            const int at = first + r;
            return at < count ? query + members[at] * a.batch.query_stride + e : nullptr;
          });
      for (int i = static_cast<int>(threadIdx.x); i < kColumns; i += kThreads) {
        shared.surrogate[i] = i < width ? ToFloat(surrogate[e + i]) : 0;
      }
    }
    CommitCopies();
  };

  if (count > 0) load_keys(0, 0);
  for (int tile = 0; tile < count; tile += kKeys) {
    const int left = count - tile;
    float c[kM][kKeys / 8][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
      }
    }
    for (int e = 0; e < dim; e += kColumns) {
      if (e > 0) {
        __syncthreads();  // the piece before has been read
        load_keys(tile, e);
      }
      WaitCopies<0>();
      __syncthreads();
      if (e + kColumns >= dim) {
        // Values arrive while the scores are computed.
        LoadTile<T, kColumns>(shared.value, kKeys, columns, a.vector_value, [&](int r) -> const T* {
          const int at = tile + r;
          return at < count ? value + members[at] * a.batch.value_stride : nullptr;
        });
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
            c[m][n][i] = 8 * n + 2 * t + i % 2 < left ? c[m][n][i] * a.scale_log2 : -INFINITY;
            tile_max = fmaxf(tile_max, c[m][n][i]);
          }
        }
        tile_max = QuadMax(tile_max);
        const float shrink = Rescaled(1, max[m][r], tile_max, 1);
        max[m][r] = tile_max;
        sum[m][r] *= shrink;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i) {
            c[m][n][i] = Exp2(c[m][n][i] - tile_max);
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
        const float stretched = product * GateTemperature(a.shape.gated, a.batch.gate[member]);
        float factor;
        if (a.shape.laplace) {
          factor = Laplace(stretched * a.shape.scale);
        } else {
          const float2 stats = a.weight_stats[member * a.shape.heads + head];
          const float temperature = GateTemperature(a.shape.gated, a.batch.gate[member]);
          factor = Exp2(temperature * (product * a.scale_log2 - stats.x)) * stats.y / total;
        }
        const int64_t to = ((row.slot + at) * heads + blockIdx.y) * a.row_pitch + first_column;
#pragma unroll
        for (int j = 0; j < kColumns / 16; ++j) {
          const int column = 16 * j + 4 * t;
          if (column >= columns) continue;  // the pitch is a multiple of 4
          const float w = o[m][2 * j][2 * r] * factor;
          const float x = o[m][2 * j + 1][2 * r] * factor;
          const float y = o[m][2 * j][2 * r + 1] * factor;
          const float z = o[m][2 * j + 1][2 * r + 1] * factor;
          if (a.wide) {
            StoreFour(static_cast<float*>(a.inside) + to + column, w, x, y, z);
          } else {
            StoreFour(static_cast<T*>(a.inside) + to + column, w, x, y, z);
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
  } else if (static_cast<int>(threadIdx.x) < columns) {  // an empty cluster says nothing
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
                          dim3(kThreads), sizeof(InsideShared<T, kColumns>)};
  return Launch(InsideKernel<T, kColumns>, shape, stream, args);
}

template <typename T>
cudaError_t Launch(const CastArgs& args, int64_t query_tiles, cudaStream_t stream) {
  const int dim =
      args.shape.head_dim > args.shape.value_dim ? args.shape.head_dim : args.shape.value_dim;
  const int columns = CastColumns(sizeof(T) == 4, dim);
  if (columns == 32) return Launch<T, 32>(args, query_tiles, stream);
  if (columns == 64) return Launch<T, 64>(args, query_tiles, stream);
  if constexpr (sizeof(T) == 2) {
    if (columns == 96) return Launch<T, 96>(args, query_tiles, stream);
    if (columns == 128) return Launch<T, 128>(args, query_tiles, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t RunCastInside(const CastArgs& args, int64_t query_tiles, cudaStream_t stream) {
  switch (args.shape.element) {
    case Element::kFloat32:
      return Launch<float>(args, query_tiles, stream);
    case Element::kFloat16:
      return Launch<__half>(args, query_tiles, stream);
    case Element::kBFloat16:
      return Launch<__nv_bfloat16>(args, query_tiles, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace castor::kernels::cuda
