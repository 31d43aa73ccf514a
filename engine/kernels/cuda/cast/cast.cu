// The host's side of CAST: tables, workspace, and the stages in order.

#include <algorithm>
#include <cstddef>

#include "engine/kernels/area.h"
#include "engine/kernels/count.h"
#include "engine/kernels/cuda/cast/cast.h"
#include "engine/kernels/cuda/cast/cast_args.cuh"

namespace castor::kernels::cuda {
namespace {

constexpr int kVectorBytes = 16;
constexpr int64_t kMaxBlocks = 0x7fffffff;  // along a grid's x
constexpr int64_t kMaxGrid = 65535;         // along y and z

int64_t ElementBytes(Element element) { return element == Element::kFloat32 ? 4 : 2; }

int64_t ClusterSize(const CastShape& shape, int64_t tokens) {
  const int64_t size =
      shape.cluster_size > 0 ? shape.cluster_size : Count(tokens).Units(shape.clusters).value();
  return std::min(size, tokens);
}

// Queries of a cluster per block of the inner attention.
int64_t InsideRows(const CastShape& shape) {
  const bool float32 = shape.element == Element::kFloat32;
  const int columns = CastColumns(float32, std::max(shape.head_dim, shape.value_dim));
  return 64 * CastRowTiles(float32, columns);
}

int64_t Tiles(int64_t count, int64_t rows) { return Count(count).Units(rows).value(); }

// Sums over all sequences of what the tables hold. None exceeds the tokens, which int32 counts.
struct Totals {
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t slots = 0;
  int64_t tiles32 = 0;
  int64_t tiles64 = 0;
  int64_t tiles128 = 0;
  int64_t query_tiles = 0;

  void Add(const CastShape& shape, int64_t length) {
    const int64_t size = ClusterSize(shape, length);
    ++sequences;
    tokens += length;
    slots += size;
    tiles32 += Tiles(length, 32);
    tiles64 += Tiles(length, 64);
    tiles128 += Tiles(length, 128);
    query_tiles += Tiles(size, InsideRows(shape));
  }
};

Totals TotalsOf(const CastShape& shape, std::span<const int32_t> cu_seqlens) {
  Totals totals;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    totals.Add(shape, cu_seqlens[s + 1] - cu_seqlens[s]);
  }
  return totals;
}

// fp16 ends at 65504, and Laplace's weights do not sum to 1.
bool IsWide(const CastShape& shape) { return shape.laplace && shape.element == Element::kFloat16; }

int Clusterings(const CastShape& shape) { return shape.per_head ? shape.heads : 1; }

// Sets the workspace's pointers; returns its size.
Count LayOut(const CastShape& shape, const Totals& totals, void* base, CastArgs* args) {
  const Count rows = Count(Clusterings(shape)) * shape.clusters;
  const Count sequences = totals.sequences;
  const Count tokens = totals.tokens;
  const int64_t element = IsWide(shape) ? 4 : ElementBytes(shape.element);
  args->row_pitch = (shape.value_dim + 7) / 8 * 8;
  Area area(base, /*alignment=*/256);
  // The affinities' softmaxes are no longer needed when the inner attention begins to write.
  const Count inside_bytes =
      Count(totals.slots) * shape.clusters * shape.heads * args->row_pitch * element;
  const Count stats_bytes =
      shape.laplace ? 0 : tokens * shape.heads * static_cast<int64_t>(sizeof(float4));
  std::byte* inside = nullptr;
  std::byte* summaries = nullptr;
  area.Allocate(inside, std::max(inside_bytes, stats_bytes));
  area.Allocate(summaries, sequences * shape.heads * shape.clusters * args->row_pitch * element);
  args->inside = inside;
  args->affinity_stats = reinterpret_cast<float4*>(inside);
  args->summaries = summaries;
  area.Allocate(args->weight_stats, shape.laplace ? 0 : tokens * shape.heads);
  area.Allocate(args->affinities, tokens * rows);
  area.Allocate(args->members, totals.slots * rows);
  area.Allocate(args->counts, sequences * rows);
  area.Allocate(args->membership, totals.tiles32 * rows);
  if (shape.single_assignment) {
    const Count choices = tokens * Clusterings(shape);
    area.Allocate(args->choice, choices);
    area.Allocate(args->free_tokens, choices);
    area.Allocate(args->places, choices);
    area.Allocate(args->arrivals, choices);
    area.Allocate(args->arriving, sequences * rows);
    area.Allocate(args->starts, sequences * rows);
    area.Allocate(args->cutoff, sequences * rows);
    area.Allocate(args->counters, 6 * sequences * Clusterings(shape));
  }
  return area.bytes();
}

bool GridsFit(const CastShape& shape, const Totals& totals) {
  constexpr int64_t kClustersOfABlock = 128;  // of the affinities, of all that go in rows of y
  const Count rows = Count(Clusterings(shape)) * shape.clusters;
  return shape.heads <= kMaxGrid && shape.clusters <= kMaxGrid * kClustersOfABlock &&
         rows * totals.sequences <= kMaxBlocks && rows * totals.query_tiles <= kMaxBlocks;
}

// True if rows of `dim` elements a head can be moved 16 bytes at a time.
bool CanVector(const void* data, int64_t stride, int64_t dim, int64_t element) {
  return reinterpret_cast<uintptr_t>(data) % kVectorBytes == 0 &&
         stride * element % kVectorBytes == 0 && dim * element % kVectorBytes == 0;
}

}  // namespace

std::vector<int32_t> MakeCastTables(const CastShape& shape, std::span<const int32_t> cu_seqlens,
                                    std::span<const int32_t> layer_of_sequence) {
  const size_t width = cu_seqlens.size();
  std::vector<int32_t> tables(kCastTables * width);
  Totals totals;
  for (size_t s = 0; s < width; ++s) {
    const int64_t row[kCastTables] = {totals.tokens,
                                      totals.slots,
                                      totals.tiles32,
                                      totals.tiles64,
                                      totals.tiles128,
                                      totals.query_tiles,
                                      s < layer_of_sequence.size() ? layer_of_sequence[s] : 0};
    for (int i = 0; i < kCastTables; ++i) tables[i * width + s] = static_cast<int32_t>(row[i]);
    if (s + 1 < width) totals.Add(shape, cu_seqlens[s + 1] - cu_seqlens[s]);
  }
  return tables;
}

int64_t CastWorkspaceBytes(const CastShape& shape, std::span<const int32_t> cu_seqlens) {
  const Totals totals = TotalsOf(shape, cu_seqlens);
  CastArgs args;
  return GridsFit(shape, totals) ? LayOut(shape, totals, nullptr, &args).value() : Count::kMost;
}

CastArgs MakeCastArgs(const CastShape& shape, const CastBatch& batch) {
  const Totals totals = TotalsOf(shape, batch.cu_seqlens);
  CastArgs args;
  args.shape = shape;
  args.batch = batch;
  args.sequences = static_cast<int>(totals.sequences);
  args.clusterings = Clusterings(shape);
  args.scale = SoftmaxScaleOf(shape.scale);
  args.wide = IsWide(shape);
  const int32_t** const tables[kCastTables] = {&args.tokens,  &args.slots,    &args.tiles32,
                                               &args.tiles64, &args.tiles128, &args.query_tiles,
                                               &args.layer};
  for (int i = 0; i < kCastTables; ++i) {
    *tables[i] = batch.tables + i * (totals.sequences + 1);
  }
  const int64_t element = ElementBytes(shape.element);
  args.vector_query = CanVector(batch.query, batch.query_stride, shape.head_dim, element);
  args.vector_key = CanVector(batch.key, batch.key_stride, shape.head_dim, element);
  args.vector_value = CanVector(batch.value, batch.value_stride, shape.value_dim, element) &&
                      CanVector(batch.value, batch.value_head_stride, shape.value_dim, element);
  args.vector_surrogates = CanVector(batch.surrogates, 0, shape.head_dim, element);
  args.vector_output = CanVector(batch.output, batch.output_stride, shape.value_dim, element);
  LayOut(shape, totals, batch.workspace, &args);
  return args;
}

cudaError_t Run(const CastShape& shape, const CastBatch& batch, cudaStream_t stream) {
  const Totals totals = TotalsOf(shape, batch.cu_seqlens);
  if (totals.tokens == 0) return cudaSuccess;
  if (!GridsFit(shape, totals)) return cudaErrorInvalidValue;
  const CastArgs args = MakeCastArgs(shape, batch);
  cudaError_t error = RunCastAffinities(args, totals.tiles64, stream);
  if (error == cudaSuccess) error = RunCastClusters(args, totals.tiles128, stream);
  if (error == cudaSuccess) error = RunCastInside(args, totals.query_tiles, stream);
  if (error == cudaSuccess) error = RunCastCombine(args, totals.tiles64, totals.tiles128, stream);
  return error;
}

}  // namespace castor::kernels::cuda
