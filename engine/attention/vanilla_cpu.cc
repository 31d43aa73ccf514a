// Vanilla attention on the CPU: cuts a ragged batch into tiles of one sequence, one head and some
// queries, and hands them, some keys at a time, to the flash kernel of this processor's instruction
// set. Heads that share keys and values are one head with all their queries, unless places matter.

#include "engine/attention/vanilla_cpu.h"

#include <algorithm>
#include <vector>

#include "engine/attention/element.h"
#include "engine/attention/parallel.h"
#include "engine/attention/variants.h"
#include "engine/base/aligned.h"
#include "engine/kernels/count.h"
#include "engine/kernels/cpu/attention/flash.h"

namespace castor::attention {
namespace {

using kernels::FlashHead;
using kernels::FlashKernel;
using kernels::FlashRange;
using kernels::FlashShape;

// Some queries of one sequence, as FlashHead counts them.
struct QueryTile {
  const Sequence* sequence;
  int64_t begin;
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

// Keys of whole blocks, one at least.
int64_t WholeBlocks(double keys) {
  constexpr auto kBlock = static_cast<double>(kernels::kFlashKeyBlock);
  return std::max<int64_t>(1, static_cast<int64_t>(keys / kBlock)) * kernels::kFlashKeyBlock;
}

// Keys per step of a tile.
int64_t StepKeys(const Spec& spec, int64_t queries) {
  constexpr double kSoftmax = 64;  // operations per score, without the products
  return WholeBlocks(kStepOperations /
                     ((PairOperations(spec) + kSoftmax) * static_cast<double>(queries)));
}

std::vector<Sequence> SequencesOf(const Spec& spec, std::span<const Problem> problems) {
  std::vector<Sequence> sequences;
  for (const Problem& problem : problems) {
    for (int64_t s = 0; s < problem.sequences(); ++s) {
      const int64_t query_offset = problem.cu_seqlens_q[s];
      const int64_t key_offset = problem.cu_seqlens_k[s];
      const int64_t keys = problem.cu_seqlens_k[s + 1] - key_offset;
      const Place place = problem.PlaceOf(spec, s);
      sequences.push_back({&problem,
                           query_offset,
                           problem.cu_seqlens_q[s + 1] - query_offset,
                           key_offset,
                           {keys, place.shift, place.visible}});
    }
  }
  return sequences;
}

// A head's tiles, in a launch of `sequences`. Heads that were put together are cut apart again if
// workers would be idle otherwise, though not into less than a vector.
int64_t TileCount(const Spec& spec, int64_t tokens, int64_t sequences) {
  constexpr int64_t kFewestQueries = 16;
  const int64_t together = HeadsTogether(spec);
  const Count queries = Count(tokens) * together;
  const int64_t needed = queries.Units(TileQueries(spec)).value();
  const Count heads = Count(spec.kv_heads) * std::max<int64_t>(1, sequences);
  const int64_t wanted = Count(ParallelWorkers()).Units(heads.value()).value();
  const int64_t shares = std::min({together, wanted, queries.value() / kFewestQueries});
  return Count(needed).RoundedUp(std::max<int64_t>(1, shares)).value();
}

template <const FlashKernel& kKernel>
bool Supports(const Spec& spec) {
  const bool dtype =
      kKernel.only_bfloat16 ? spec.dtype == DType::kBFloat16 : IsFloating(spec.dtype);
  return std::holds_alternative<Vanilla>(spec.kernel) && dtype && kKernel.runs_here();
}

FlashShape ShapeOf(const Spec& spec) {
  return {.element = ElementOf(spec.dtype),
          .head_dim = spec.head_dim,
          .value_dim = spec.value_dim,
          .scale = spec.softmax_scale,
          .causal = std::get<Vanilla>(spec.kernel).causal,
          .left = spec.window.left,
          .right = spec.window.right,
          .softcap = spec.softcap,
          .biased = spec.bias.any() || spec.key_bias_heads > 0,
          .bias_reach = spec.bias.reach};
}

// True if the tiles of a sequence share keys and values, packed once, instead of packing what each
// sees. With a window a head's tiles see different keys, so only those of other heads count.
bool SharesKeys(const Spec& spec, int64_t tiles) {
  constexpr int64_t kFewestTiles = 3;
  const int64_t heads = spec.group() / HeadsTogether(spec);
  return (spec.window.any() ? 1 : tiles) * heads >= kFewestTiles;
}

// Floats of keys and values that are packed at a time: what stays in the last cache, and has tiles
// for all workers. A single head may need more.
int64_t SharedFloats() { return (int64_t{1} << 21) * ParallelWorkers(); }

// One scratch area per worker, whatever the sequences' lengths, and what tiles share.
template <const FlashKernel& kKernel>
int64_t WorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                       std::span<const int32_t> cu_seqlens_k) {
  const FlashShape shape = ShapeOf(spec);
  const int64_t sequences = static_cast<int64_t>(cu_seqlens_q.size()) - 1;
  Count all = 0;
  Count most = SharedFloats();
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t queries = cu_seqlens_q[s + 1] - cu_seqlens_q[s];
    const int64_t keys = cu_seqlens_k[s + 1] - cu_seqlens_k[s];
    const int64_t tiles = TileCount(spec, queries, sequences);
    if (HasFewRows(spec, queries, keys) || !SharesKeys(spec, tiles)) continue;
    const Count head = kernels::FlashPackedFloats(shape, keys);
    all += head * spec.kv_heads;
    most = std::max(most, head);
  }
  const Count scratch = Count(kKernel.scratch_floats(shape)) * ParallelWorkers();
  const Count few = FewRowsFloats(*kKernel.few_rows, shape, spec, cu_seqlens_q, cu_seqlens_k);
  return ((scratch + std::min(all, most) + few) * static_cast<int64_t>(sizeof(float))).value();
}

// A launch: its tasks and what they have in common.
template <const FlashKernel& kKernel>
class Launch {
 public:
  Launch(const Spec& spec, RunControl& control)
      : spec_(spec),
        control_(control),
        shape_(ShapeOf(spec)),
        scratch_floats_(kKernel.scratch_floats(shape_)),
        scratch_(AllocateAligned<float>(scratch_floats_ * ParallelWorkers())) {}

  absl::Status Run(std::span<Sequence> sequences) {
    sequences_ = static_cast<int64_t>(sequences.size());
    const auto others = std::stable_partition(
        sequences.begin(), sequences.end(),
        [&](const Sequence& s) { return HasFewRows(spec_, s.queries, s.places.keys); });
    absl::Status status =
        RunFewRows(*kKernel.few_rows, shape_, spec_, {sequences.begin(), others}, control_);
    if (!status.ok()) return status;
    std::vector<QueryTile> tiles;
    std::vector<SharedKeys> shared;
    for (const Sequence& sequence : std::span<Sequence>(others, sequences.end())) {
      if (!SharesKeys(spec_, TileCount(spec_, sequence.queries, sequences_))) {
        AppendTiles(sequence, &tiles);
        continue;
      }
      for (int64_t kv_head = 0; kv_head < spec_.kv_heads; ++kv_head) {
        shared.push_back({&sequence, kv_head * heads_each_, nullptr});
      }
    }
    if (status = RunTiles(tiles); !status.ok()) return status;
    return RunShared(shared);
  }

 private:
  // Keys and values of one sequence, which the tiles of some heads share.
  struct SharedKeys {
    const Sequence* sequence;
    int64_t first_head;  // of heads_each_
    float* packed;
  };

  FlashHead HeadOf(const SharedKeys& keys, int64_t head) const {
    FlashHead flash = HeadOf(*keys.sequence, head);
    flash.packed = keys.packed;
    return flash;
  }

  // `head` counts those of a launch.
  FlashHead HeadOf(const Sequence& sequence, int64_t head) const {
    return attention::HeadOf(spec_, sequence, head * together_, together_);
  }

  // Appends a sequence's tiles, of nearly equal size.
  void AppendTiles(const Sequence& sequence, std::vector<QueryTile>* tiles) const {
    const int64_t count = TileCount(spec_, sequence.queries, sequences_);
    const int64_t queries = sequence.queries * together_;
    for (int64_t t = 0; t < count; ++t) {
      tiles->push_back({&sequence, queries * t / count, queries * (t + 1) / count});
    }
  }

  // Tiles that pack for themselves. Neighbouring tasks are heads of the same tokens, which share
  // cache lines.
  absl::Status RunTiles(std::span<const QueryTile> tiles) {
    double operations = 0;
    for (const QueryTile& tile : tiles) operations += Operations(tile);
    const int64_t heads = spec_.kv_heads * heads_each_;
    return ParallelSteps(static_cast<int64_t>(tiles.size()) * heads,
                         operations * static_cast<double>(heads), control_,
                         [&](int worker, int64_t task, int64_t step) {
                           const QueryTile& tile = tiles[task / heads];
                           const FlashHead head = HeadOf(*tile.sequence, task % heads);
                           return Step(worker, head, tile, step);
                         });
  }

  // Some at a time, as many as SharedFloats lets.
  absl::Status RunShared(std::span<SharedKeys> shared) {
    AlignedArray<float> packed;
    int64_t capacity = 0;
    while (!shared.empty()) {
      int64_t floats = 0;
      size_t count = 0;
      for (; count < shared.size(); ++count) {
        const int64_t more = PackedFloats(shared[count]);
        if (count > 0 && more > SharedFloats() - floats) break;
        floats += more;
      }
      if (floats > capacity) {
        packed.reset();
        packed = AllocateAligned<float>(floats);
        capacity = floats;
      }
      float* area = packed.get();
      for (SharedKeys& keys : shared.first(count)) {
        keys.packed = area;
        area += PackedFloats(keys);
      }
      if (absl::Status status = Pack(shared.first(count)); !status.ok()) return status;
      if (absl::Status status = Attend(shared.first(count)); !status.ok()) return status;
      shared = shared.subspan(count);
    }
    return absl::OkStatus();
  }

  absl::Status Pack(std::span<const SharedKeys> shared) {
    // The operations of a product that take as long as moving an element.
    constexpr double kOperations = 16;
    const double row = static_cast<double>(spec_.head_dim + spec_.value_dim) * kOperations;
    const int64_t task_keys = WholeBlocks(kStepOperations / row);
    struct Part {
      const SharedKeys* keys;
      int64_t begin;
    };
    std::vector<Part> parts;
    double elements = 0;
    for (const SharedKeys& keys : shared) {
      elements += static_cast<double>(PackedFloats(keys));
      for (int64_t key = 0; key < keys.sequence->places.keys; key += task_keys) {
        parts.push_back({&keys, key});
      }
    }
    return ParallelFor(static_cast<int64_t>(parts.size()), elements * kOperations, control_,
                       [&](int worker, int64_t task) {
                         const auto& [keys, begin] = parts[task];
                         kKernel.pack(shape_, HeadOf(*keys, keys->first_head), begin,
                                      std::min(begin + task_keys, keys->sequence->places.keys),
                                      ScratchOf(worker));
                       });
  }

  absl::Status Attend(std::span<const SharedKeys> shared) {
    std::vector<QueryTile> tiles;
    std::vector<FlashHead> heads;
    std::vector<const FlashHead*> head_of;
    heads.reserve(shared.size() * heads_each_);
    double operations = 0;
    for (const SharedKeys& keys : shared) {
      for (int64_t n = 0; n < heads_each_; ++n) {
        heads.push_back(HeadOf(keys, keys.first_head + n));
        AppendTiles(*keys.sequence, &tiles);
        head_of.resize(tiles.size(), &heads.back());
      }
    }
    for (const QueryTile& tile : tiles) operations += Operations(tile);
    return ParallelSteps(static_cast<int64_t>(tiles.size()), operations, control_,
                         [&](int worker, int64_t task, int64_t step) {
                           return Step(worker, *head_of[task], tiles[task], step);
                         });
  }

  // Some keys of a tile. Returns whether there are more.
  bool Step(int worker, const FlashHead& head, const QueryTile& tile, int64_t step) {
    const FlashRange keys = KeysOf(tile);
    const int64_t from = keys.first();
    const int64_t step_keys = StepKeys(spec_, tile.end - tile.begin);
    // Steps end between blocks of keys, which are counted from the sequence's first key.
    const int64_t first = from / kernels::kFlashKeyBlock * kernels::kFlashKeyBlock;
    const int64_t begin = std::max(from, first + step * step_keys);
    const int64_t end = std::min(keys.end, first + (step + 1) * step_keys);
    kKernel.run(shape_, head, tile.begin, tile.end, begin, end, ScratchOf(worker));
    return end < keys.end;
  }

  FlashRange KeysOf(const QueryTile& tile) const {
    return kernels::FlashKeys(shape_, tile.sequence->places, tile.begin, tile.end);
  }

  double Operations(const QueryTile& tile) const {
    return static_cast<double>((tile.end - tile.begin) * KeysOf(tile).count()) *
           PairOperations(spec_);
  }

  int64_t PackedFloats(const SharedKeys& keys) const {
    return kernels::FlashPackedFloats(shape_, keys.sequence->places.keys).value();
  }

  float* ScratchOf(int worker) { return scratch_.get() + worker * scratch_floats_; }

  const Spec& spec_;
  RunControl& control_;
  const FlashShape shape_;
  const int64_t together_ = HeadsTogether(spec_);
  const int64_t heads_each_ = spec_.group() / together_;  // of a launch, by the same keys
  int64_t sequences_ = 0;
  const int64_t scratch_floats_;
  const AlignedArray<float> scratch_;
};

template <const FlashKernel& kKernel>
absl::Status Run(const Spec& spec, std::span<const Problem> problems, RunControl& control) {
  std::vector<Sequence> sequences = SequencesOf(spec, problems);
  return Launch<kKernel>(spec, control).Run(sequences);
}

template <const FlashKernel& kKernel>
constexpr Variant Row(std::string_view backend) {
  return {KernelName::kVanilla, backend, &Supports<kKernel>, &Run<kKernel>,
          &WorkspaceBytes<kKernel>};
}

constexpr Variant kRows[] = {
#if defined(__x86_64__)
    Row<kernels::kFlashAvx512Bf16>("cpu-avx512-bf16"),
    Row<kernels::kFlashAvx512>("cpu-avx512"),
    Row<kernels::kFlashAvx2>("cpu-avx2"),
#endif
    Row<kernels::kFlashPortable>("cpu-portable"),
};

}  // namespace

FlashHead HeadOf(const Spec& spec, const Sequence& sequence, int64_t head, int64_t group) {
  const Problem& problem = *sequence.problem;
  const int64_t size = static_cast<int64_t>(SizeOf(spec.dtype));
  const auto row = [&](auto* data, int64_t token, int64_t stride, int64_t at) {
    return data + (token * stride + at) * size;
  };
  FlashHead out;
  out.group = group;
  const int64_t kv_head = head / spec.group();
  out.query = row(problem.query, sequence.query_offset, problem.query_stride, head * spec.head_dim);
  out.key = row(problem.key, sequence.key_offset, problem.key_stride, kv_head * spec.head_dim);
  out.value = row(problem.value, sequence.key_offset, problem.value_stride,
                  kv_head * problem.value_head_stride);
  out.output =
      row(problem.output, sequence.query_offset, problem.output_stride, head * spec.value_dim);
  out.query_stride = problem.query_stride;
  out.key_stride = problem.key_stride;
  out.value_stride = problem.value_stride;
  out.output_stride = problem.output_stride;
  out.places = sequence.places;
  if (problem.log_sum_exp != nullptr) {
    out.log_sum_exp = problem.log_sum_exp + sequence.query_offset * spec.heads + head;
    out.log_sum_exp_stride = spec.heads;
  }
  const PositionBias& bias = spec.bias;
  if (bias.table != nullptr) out.bias_table = bias.table + head * (2 * bias.reach + 1);
  if (bias.slopes != nullptr) out.slope = bias.slopes[head];
  if (problem.key_bias != nullptr) {
    out.key_bias = KeyBiasOf(spec, problem, sequence.key_offset, head);
    out.key_bias_stride = spec.key_bias_heads;
  }
  return out;
}

// Neighbouring lanes must be neighbouring tokens if places matter.
int64_t HeadsTogether(const Spec& spec) {
  const bool places = spec.positional() || std::get<Vanilla>(spec.kernel).causal;
  return places ? 1 : spec.group();
}

std::span<const Variant> VanillaCpuVariants() { return kRows; }

}  // namespace castor::attention
