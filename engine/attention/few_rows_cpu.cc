// Vanilla attention of sequences with few queries and many keys, as in decoding.

#include <algorithm>
#include <vector>

#include "engine/attention/parallel.h"
#include "engine/attention/vanilla_cpu.h"
#include "engine/base/aligned.h"

namespace castor::attention {
namespace {

using kernels::FewRows;
using kernels::FewRowsKernel;
using kernels::FlashHead;
using kernels::FlashRange;
using kernels::FlashShape;
using kernels::kFewRowsPart;

// Floats of the sums of one part of all heads.
Count PartFloats(const Spec& spec, const FlashShape& shape, int64_t rows) {
  return kernels::FewRowsSums(shape, rows * spec.group()) * spec.kv_heads;
}

// Operations for a part of one head of keys. With few queries, loading a row of keys takes as long
// as kLoad operations on each of its elements.
double PartOperations(const Spec& spec, int64_t rows) {
  constexpr int64_t kLoad = 16;
  return static_cast<double>(kFewRowsPart * std::max(kLoad, 2 * rows * spec.group())) *
         static_cast<double>(spec.head_dim + spec.value_dim);
}

// Heads of keys and values of a task: all of them, which lie side by side in memory, unless workers
// would be idle or a task would be long.
int64_t HeadsOfTask(const Spec& spec, int64_t rows, int64_t parts) {
  constexpr double kMostOperations = 16 * kStepOperations;
  const auto most = static_cast<int64_t>(kMostOperations / PartOperations(spec, rows));
  const int64_t tasks = Count(2 * ParallelWorkers()).Units(parts).value();
  return std::clamp<int64_t>(most, 1, std::max<int64_t>(1, spec.kv_heads / tasks));
}

}  // namespace

bool HasFewRows(const Spec& spec, int64_t queries, int64_t keys) {
  constexpr int64_t kMostRows = 4;
  constexpr int64_t kFewestKeys = 256;
  // So that a part is no longer than the longest step of tiles, whichever heads share keys.
  constexpr int64_t kMostElements = int64_t{3} << 16;
  return queries > 0 && queries <= kMostRows && keys >= kFewestKeys && !spec.bias.any() &&
         (Count(spec.head_dim) + spec.value_dim) * spec.heads * queries <= Count(kMostElements);
}

absl::Status RunFewRows(const FewRowsKernel& kernel, const FlashShape& shape, const Spec& spec,
                        std::span<const Sequence> sequences, RunControl& control) {
  if (sequences.empty()) return absl::OkStatus();
  struct Part {
    size_t sequence;
    int64_t begin;  // the first key
    int64_t sums;   // where those of the heads begin
  };
  std::vector<Part> parts;
  std::vector<size_t> firsts;  // each sequence's first part, and the number of parts
  std::vector<FlashHead> heads;
  int64_t floats = 0;
  int64_t most_rows = 0;
  double operations = 0;
  for (const Sequence& sequence : sequences) {
    firsts.push_back(parts.size());
    for (int64_t head = 0; head < spec.kv_heads; ++head) {
      heads.push_back(HeadOf(spec, sequence, head * spec.group(), spec.group()));
    }
    most_rows = std::max(most_rows, sequence.queries);
    const FlashRange range = kernels::FlashKeys(shape, sequence.places, 0, sequence.queries);
    for (int64_t begin = 0; begin < sequence.places.keys; begin += kFewRowsPart) {
      // Parts that no query sees are left out, but for the first.
      const bool behind = begin >= range.visible && begin + kFewRowsPart <= range.begin;
      if (begin > 0 && (behind || begin >= range.end)) continue;
      parts.push_back({firsts.size() - 1, begin, floats});
      floats += PartFloats(spec, shape, sequence.queries).value();
      operations += PartOperations(spec, sequence.queries) * static_cast<double>(spec.kv_heads);
    }
  }
  firsts.push_back(parts.size());
  const int64_t scratch_floats =
      kernel.scratch_floats(shape, most_rows * spec.group(), spec.kv_heads).value();
  const AlignedArray<float> sums = AllocateAligned<float>(floats);
  const AlignedArray<float> scratch = AllocateAligned<float>(scratch_floats * ParallelWorkers());
  const auto rows_of = [&](const Part& part, int64_t head, int64_t count) {
    const int64_t rows = sequences[part.sequence].queries;
    const int64_t head_floats = PartFloats(spec, shape, rows).value() / spec.kv_heads;
    return FewRows{.heads = &heads[part.sequence * spec.kv_heads + head],
                   .count = count,
                   .rows = rows,
                   .sums = sums.get() + part.sums + head * head_floats};
  };
  const int64_t each = HeadsOfTask(spec, most_rows, static_cast<int64_t>(parts.size()));
  const int64_t cuts = Count(spec.kv_heads).Units(each).value();
  absl::Status status =
      ParallelFor(static_cast<int64_t>(parts.size()) * cuts, operations, control,
                  [&](int worker, int64_t task) {
                    const Part& part = parts[task / cuts];
                    const int64_t head = task % cuts * each;
                    const int64_t keys = sequences[part.sequence].places.keys;
                    kernel.attend(shape, rows_of(part, head, std::min(each, spec.kv_heads - head)),
                                  part.begin, std::min(part.begin + kFewRowsPart, keys),
                                  scratch.get() + worker * scratch_floats);
                  });
  if (!status.ok()) return status;
  return ParallelFor(static_cast<int64_t>(heads.size()), 2 * static_cast<double>(floats), control,
                     [&](int, int64_t task) {
                       const int64_t sequence = task / spec.kv_heads;
                       const Part& first = parts[firsts[sequence]];
                       const FewRows rows = rows_of(first, task % spec.kv_heads, 1);
                       kernel.join(shape, rows,
                                   static_cast<int64_t>(firsts[sequence + 1] - firsts[sequence]),
                                   PartFloats(spec, shape, rows.rows).value());
                     });
}

Count FewRowsFloats(const FewRowsKernel& kernel, const FlashShape& shape, const Spec& spec,
                    std::span<const int32_t> cu_seqlens_q, std::span<const int32_t> cu_seqlens_k) {
  Count sums = 0;
  Count scratch = 0;
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    const int64_t queries = cu_seqlens_q[s + 1] - cu_seqlens_q[s];
    const int64_t keys = cu_seqlens_k[s + 1] - cu_seqlens_k[s];
    if (!HasFewRows(spec, queries, keys)) continue;
    sums += PartFloats(spec, shape, queries) * Count(keys).Units(kFewRowsPart);
    scratch =
        std::max(scratch, kernel.scratch_floats(shape, queries * spec.group(), spec.kv_heads));
  }
  return sums + scratch * ParallelWorkers();
}

}  // namespace castor::attention
