// The arguments of every CAST kernel, and how blocks find their sequence in a ragged batch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/kernels/cuda/cast/cast.h"
#include "engine/kernels/cuda/scale.cuh"

namespace castor::kernels::cuda {

// Arrays by cluster (affinities, members and their results) have a row for each sequence,
// clustering and cluster. There is one clustering for all heads, or one for each head.
struct CastArgs {
  CastShape shape;
  CastBatch batch;
  int sequences = 0;
  int clusterings = 0;  // 1, or the heads
  SoftmaxScale scale;

  // Rows of the tables, [sequences + 1]: sums over the sequences before.
  const int32_t* tokens = nullptr;
  const int32_t* slots = nullptr;        // of kappa
  const int32_t* tiles32 = nullptr;      // of ceil(tokens / 32)
  const int32_t* tiles64 = nullptr;      // of ceil(tokens / 64)
  const int32_t* tiles128 = nullptr;     // of ceil(tokens / 128)
  const int32_t* query_tiles = nullptr;  // of ceil(kappa / rows of a block of the inner attention)
  const int32_t* layer = nullptr;        // not a sum: the layer whose surrogates a sequence uses

  // True if rows can be moved 16 bytes at a time.
  bool vector_query = false;
  bool vector_key = false;
  bool vector_value = false;
  bool vector_surrogates = false;
  bool vector_output = false;  // 4 elements at a time
  bool wide = false;           // `inside` and `summaries` hold fp32 though the element is smaller

  // The workspace.
  float4* affinity_stats = nullptr;  // [tokens, heads]: signed max, 1 / sum of query; of key
  float2* weight_stats = nullptr;    // [tokens, heads]: signed max, 1 / sum of the gated query's
  float* affinities = nullptr;       // rows of the sequence's tokens: A_g
  int32_t* members = nullptr;        // rows of kappa: tokens of the sequence, ascending
  int32_t* counts = nullptr;         // one a row: members, at most kappa
  uint2* membership = nullptr;       // [tile of 32 tokens, clusterings * N_c], see Membership
  void* inside = nullptr;            // [slot, heads of the clustering, row_pitch]: alpha * R_intra
  void* summaries = nullptr;         // [sequences, heads, N_c, row_pitch]: R_inter
  int row_pitch = 0;                 // value_dim, rounded up to 8
  // Single assignment alone uses these, see cast_assign.cu:
  int32_t* choice = nullptr;             // [tokens * clusterings]
  int32_t* free_tokens = nullptr;        // [tokens * clusterings]
  int32_t* places = nullptr;             // [tokens * clusterings]
  int32_t* arrivals = nullptr;           // [tokens * clusterings]
  int32_t* arriving = nullptr;           // one a row
  int32_t* starts = nullptr;             // one a row
  unsigned long long* cutoff = nullptr;  // one a row: what a pair must reach to be held
  int32_t* counters = nullptr;           // [sequences * clusterings, 6]
};

// x: the tokens of a tile of 32 that a cluster holds; y: the number of earlier tokens that it
// holds. So the place of token j among the members is y + popc(x below j). This replaces an inverse
// list: no token has a list of its own, and reading the words in order visits the clusters in
// order.
using Membership = uint2;

// The greatest s with first[s] * unit <= x; requires first[0] = 0 and x < first[count] * unit.
__device__ __forceinline__ int FindSequence(const int32_t* first, int count, int64_t unit,
                                            int64_t x) {
  int low = 0;
  int high = count;  // first[high] * unit > x
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first[middle] * unit <= x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// A row (s, g, c) by its parts.
struct CastRow {
  int sequence;
  int first_token;
  int tokens;
  int size;  // kappa
  int clustering;
  int cluster;
  int64_t index;     // over all rows
  int64_t affinity;  // where its affinities start
  int64_t slot;      // where its members start
};

__device__ __forceinline__ CastRow RowOf(const CastArgs& a, int sequence, int clustering,
                                         int cluster) {
  CastRow row;
  row.sequence = sequence;
  row.first_token = a.tokens[sequence];
  row.tokens = a.tokens[sequence + 1] - row.first_token;
  const int first_slot = a.slots[sequence];
  row.size = a.slots[sequence + 1] - first_slot;
  row.clustering = clustering;
  row.cluster = cluster;
  const int64_t rows = int64_t{a.clusterings} * a.shape.clusters;
  const int64_t inner = int64_t{clustering} * a.shape.clusters + cluster;
  row.index = sequence * rows + inner;
  row.affinity = row.first_token * rows + inner * row.tokens;
  row.slot = first_slot * rows + inner * row.size;
  return row;
}

__device__ __forceinline__ CastRow RowOf(const CastArgs& a, int64_t index) {
  const int64_t rows = int64_t{a.clusterings} * a.shape.clusters;
  const auto inner = static_cast<int>(index % rows);
  return RowOf(a, static_cast<int>(index / rows), inner / a.shape.clusters,
               inner % a.shape.clusters);
}

// The kernels' arguments for `batch`, with its tables and workspace.
CastArgs MakeCastArgs(const CastShape& shape, const CastBatch& batch);

// The stages, one or a few launches each. They pass their results through the workspace.
cudaError_t RunCastAffinities(const CastArgs& args, int64_t tiles64, cudaStream_t stream);
cudaError_t RunCastClusters(const CastArgs& args, int64_t tiles128, cudaStream_t stream);
cudaError_t RunCastAssignment(const CastArgs& args, int64_t tiles128, cudaStream_t stream);
cudaError_t RunCastInside(const CastArgs& args, int64_t query_tiles, cudaStream_t stream);
cudaError_t RunCastCombine(const CastArgs& args, int64_t tiles64, int64_t tiles128,
                           cudaStream_t stream);

// Columns of head_dim and value_dim that a block of the inner attention and of the combination
// keeps at a time: larger dims are processed in pieces. fp32 has smaller ones to save shared
// memory.
__host__ __device__ constexpr int CastColumns(bool float32, int dim) {
  if (dim <= 32) return 32;
  if (dim <= 64 || float32) return 64;
  return dim <= 96 ? 96 : 128;
}

// Calls launch.template operator()<columns>() with those.
template <typename T, typename F>
cudaError_t ForCastColumns(const CastShape& shape, F launch) {
  const int dim = shape.head_dim > shape.value_dim ? shape.head_dim : shape.value_dim;
  const int columns = CastColumns(sizeof(T) == 4, dim);
  if (columns == 32) return launch.template operator()<32>();
  if (columns == 64) return launch.template operator()<64>();
  if constexpr (sizeof(T) == 2) {
    if (columns == 96) return launch.template operator()<96>();
    if (columns == 128) return launch.template operator()<128>();
  }
  return cudaErrorInvalidValue;
}

// Tiles of 16 rows that one of their warps has.
__host__ __device__ constexpr int CastRowTiles(bool float32, int columns) {
  return !float32 && columns <= 64 ? 2 : 1;
}

}  // namespace castor::kernels::cuda
