// Vanilla attention on the CPU: cuts a ragged batch into tiles of one sequence, one head and some
// queries, and hands them, some keys at a time, to the flash kernel of this processor's instruction
// set.

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/attention/count.h"
#include "engine/attention/element.h"
#include "engine/attention/parallel.h"
#include "engine/attention/variants_cpu.h"
#include "engine/base/aligned.h"
#include "engine/base/error.h"
#include "engine/kernels/cpu/flash.h"

namespace castor::attention {
namespace {

using kernels::FlashHead;
using kernels::FlashKernel;
using kernels::FlashRange;
using kernels::FlashShape;

// Some queries of one sequence, in every head.
struct QueryTile {
  const Problem* problem;
  int64_t query_offset;  // the sequence's first token
  int64_t key_offset;
  int64_t keys;
  int64_t begin;  // queries, counted in the sequence
  int64_t end;
};

// Operations for a query and a key: a multiplication and an addition each for scores and outputs.
double PairOperations(const Spec& spec) {
  return 2.0 * static_cast<double>(spec.head_dim) + 2.0 * static_cast<double>(spec.value_dim);
}

// The most queries in a tile: fewer if rows are so long that a step with one block of keys would
// take much longer than others.
int64_t TileQueries(const Spec& spec) {
  constexpr double kMostOperations = 50 * kStepOperations;
  const double queries =
      kMostOperations / (PairOperations(spec) * static_cast<double>(kernels::kFlashKeyBlock));
  return queries >= kernels::kFlashTileQueries ? kernels::kFlashTileQueries
                                               : std::max<int64_t>(16, int64_t(queries) / 16 * 16);
}

// Keys per step of a tile.
int64_t StepKeys(const Spec& spec, int64_t queries) {
  constexpr double kSoftmax = 64;  // operations per score, besides the products
  const double block = (PairOperations(spec) + kSoftmax) * static_cast<double>(queries) *
                       static_cast<double>(kernels::kFlashKeyBlock);
  return std::max<int64_t>(1, int64_t(kStepOperations / block)) * kernels::kFlashKeyBlock;
}

// Cuts each sequence into tiles of nearly equal size. The cuts do not depend on other sequences.
std::vector<QueryTile> MakeTiles(const Spec& spec, std::span<const Problem> problems) {
  const int64_t most = TileQueries(spec);
  std::vector<QueryTile> tiles;
  for (const Problem& problem : problems) {
    for (int64_t s = 0; s < problem.sequences(); ++s) {
      const int64_t query_offset = problem.cu_seqlens_q[s];
      const int64_t key_offset = problem.cu_seqlens_k[s];
      const int64_t queries = problem.cu_seqlens_q[s + 1] - query_offset;
      const int64_t keys = problem.cu_seqlens_k[s + 1] - key_offset;
      const int64_t count = (queries + most - 1) / most;
      for (int64_t t = 0; t < count; ++t) {
        tiles.push_back({&problem, query_offset, key_offset, keys, queries * t / count,
                         queries * (t + 1) / count});
      }
    }
  }
  return tiles;
}

FlashHead HeadOf(const Spec& spec, const QueryTile& tile, int64_t head) {
  const Problem& problem = *tile.problem;
  const int64_t size = static_cast<int64_t>(SizeOf(spec.dtype));
  const auto row = [&](auto* data, int64_t token, int64_t stride, int64_t dim) {
    return data + (token * stride + head * dim) * size;
  };
  FlashHead out;
  out.query = row(problem.query, tile.query_offset, problem.query_stride, spec.head_dim);
  out.key = row(problem.key, tile.key_offset, problem.key_stride, spec.head_dim);
  out.value = row(problem.value, tile.key_offset, problem.value_stride, spec.value_dim);
  out.output = row(problem.output, tile.query_offset, problem.output_stride, spec.value_dim);
  out.query_stride = problem.query_stride;
  out.key_stride = problem.key_stride;
  out.value_stride = problem.value_stride;
  out.output_stride = problem.output_stride;
  out.keys = tile.keys;
  const PositionBias& bias = spec.bias;
  if (bias.table != nullptr) out.bias_table = bias.table + head * (2 * bias.reach + 1);
  if (bias.slopes != nullptr) out.slope = bias.slopes[head];
  return out;
}

// A bias is divided by the scale. Models have scales near 1/8.
bool BiasFits(const Spec& spec) {
  constexpr double kLeastScale = 0x1p-32;
  return !spec.bias.any() || std::abs(spec.softmax_scale) >= kLeastScale;
}

template <const FlashKernel& kKernel>
bool Supports(const Spec& spec) {
  return std::holds_alternative<Vanilla>(spec.kernel) && IsFloating(spec.dtype) && BiasFits(spec) &&
         kKernel.runs_here();
}

FlashShape ShapeOf(const Spec& spec) {
  return {.element = ElementOf(spec.dtype),
          .head_dim = spec.head_dim,
          .value_dim = spec.value_dim,
          .scale = spec.softmax_scale,
          .causal = std::get<Vanilla>(spec.kernel).causal,
          .window = spec.window.value_or(kernels::kFlashSeesAll),
          .bias_reach = spec.bias.table == nullptr ? -1 : spec.bias.reach};
}

FlashRange KeysOf(const FlashShape& shape, const QueryTile& tile) {
  return kernels::FlashKeys(shape, tile.keys, tile.begin, tile.end);
}

// One scratch area per worker, whatever the sequences' lengths.
template <const FlashKernel& kKernel>
int64_t WorkspaceBytes(const Spec& spec, std::span<const int32_t>, std::span<const int32_t>) {
  return (Count(kKernel.scratch_floats(ShapeOf(spec))) * ParallelWorkers() *
          static_cast<int64_t>(sizeof(float)))
      .value();
}

template <const FlashKernel& kKernel>
absl::Status Run(const Spec& spec, std::span<const Problem> problems, RunControl& control) {
  const FlashShape shape = ShapeOf(spec);
  const std::vector<QueryTile> tiles = MakeTiles(spec, problems);
  const int64_t scratch_floats = kKernel.scratch_floats(shape);
  const auto scratch = AllocateAligned<float>(scratch_floats * ParallelWorkers());
  double flops = 0;
  for (const QueryTile& tile : tiles) {
    const FlashRange keys = KeysOf(shape, tile);
    flops += static_cast<double>((tile.end - tile.begin) * (keys.end - keys.begin)) *
             static_cast<double>(spec.heads) * PairOperations(spec);
  }
  // Neighbouring tasks are heads of the same tokens, which share cache lines.
  const int64_t tasks = static_cast<int64_t>(tiles.size()) * spec.heads;
  return ParallelSteps(tasks, flops, control, [&](int worker, int64_t task, int64_t step) {
    const QueryTile& tile = tiles[task / spec.heads];
    const FlashRange keys = KeysOf(shape, tile);
    const int64_t step_keys = StepKeys(spec, tile.end - tile.begin);
    // Steps end between blocks of keys, which are counted from the sequence's first key.
    const int64_t first = keys.begin / kernels::kFlashKeyBlock * kernels::kFlashKeyBlock;
    const int64_t begin = std::max(keys.begin, first + step * step_keys);
    const int64_t end = std::min(keys.end, first + (step + 1) * step_keys);
    kKernel.run(shape, HeadOf(spec, tile, task % spec.heads), tile.begin, tile.end, begin, end,
                scratch.get() + worker * scratch_floats);
    return end < keys.end;
  });
}

template <const FlashKernel& kKernel>
constexpr Variant Row(std::string_view backend) {
  return {KernelName::kVanilla, backend, &Supports<kKernel>, &Run<kKernel>,
          &WorkspaceBytes<kKernel>};
}

constexpr Variant kRows[] = {
#if defined(__x86_64__)
    Row<kernels::kFlashAvx512>("cpu-avx512"),
    Row<kernels::kFlashAvx2>("cpu-avx2"),
#endif
    Row<kernels::kFlashPortable>("cpu-portable"),
};

}  // namespace

std::span<const Variant> VanillaCpuVariants() { return kRows; }

}  // namespace castor::attention
