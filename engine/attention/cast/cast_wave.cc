#include "engine/attention/cast/cast_wave.h"

#include <algorithm>

#include "engine/attention/element.h"
#include "engine/attention/parallel.h"

namespace castor::attention {

kernels::CastShape CastShapeOf(const Spec& spec) {
  const auto& cast = std::get<Cast>(spec.kernel);
  return {ElementOf(spec.dtype),
          spec.heads,
          spec.head_dim,
          spec.value_dim,
          spec.surrogates,
          spec.softmax_scale,
          cast.attention_function == Cast::AttentionFunction::kLaplace,
          spec.group()};
}

CastWave::CastWave(const kernels::CastKernel& kernel, const Spec& spec, const CastLayout& layout,
                   std::span<const CastItem> items, std::byte* memory, RunControl& control)
    : kernel_(kernel),
      spec_(spec),
      cast_(std::get<Cast>(spec.kernel)),
      shape_(CastShapeOf(spec)),
      layout_(layout),
      scratch_floats_(kernel.scratch_floats(shape_)),
      control_(control),
      memory_(memory) {
  const int64_t workers = ParallelWorkers();
  scratch_ = Allocate<float>(workers * scratch_floats_);
  ranks_ = Allocate<uint32_t>(workers * 2 * layout.longest());
  inside_ = Allocate<float>(layout.rows().value() * spec.value_dim);
  sequences_.reserve(items.size());  // heads point at clusterings
  for (const CastItem& item : items) Place(item);
}

template <typename T>
T* CastWave::Allocate(int64_t count) {
  T* const taken = reinterpret_cast<T*>(memory_);
  memory_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  return taken;
}

float* CastWave::PackedSurrogates(const CastItem& item) {
  const CastInputs& inputs = item.problem->cast;
  const int64_t elements = spec_.surrogates * spec_.heads * spec_.head_dim;
  const std::byte* const layer = inputs.surrogates + inputs.layer(item.sequence) * elements *
                                                         static_cast<int64_t>(SizeOf(spec_.dtype));
  if (layer != packed_from_) {
    packed_ = Allocate<float>(elements);
    packed_from_ = layer;
    kernel_.pack_surrogates(shape_, layer, packed_);
  }
  return packed_;
}

void CastWave::Place(const CastItem& item) {
  const Problem& problem = *item.problem;
  const int64_t offset = problem.cu_seqlens_q[item.sequence];
  const int64_t clusters = spec_.surrogates;
  const int64_t size = static_cast<int64_t>(SizeOf(spec_.dtype));
  Sequence& sequence = sequences_.emplace_back();
  sequence.tokens = item.tokens;
  sequence.cluster_size = CastClusterSize(spec_, item.tokens);
  sequence.tiles = CastLayout::Tiles(item.tokens);
  sequence.gate = problem.cast.gate + offset;
  sequence.query_share = Allocate<float>(item.tokens);
  sequence.query_temperature = Allocate<float>(item.tokens);
  sequence.key_temperature = Allocate<float>(item.tokens);
  sequence.in = {problem.query + offset * problem.query_stride * size,
                 problem.key + offset * problem.key_stride * size,
                 problem.value + offset * problem.value_stride * size,
                 problem.output + offset * problem.output_stride * size,
                 problem.query_stride,
                 problem.key_stride,
                 problem.value_stride,
                 problem.output_stride,
                 PackedSurrogates(item),
                 sequence.query_share,
                 sequence.query_temperature,
                 sequence.key_temperature,
                 problem.value_head_stride};
  sequence.clusterings.reserve(layout_.clusterings());
  sequence.heads.reserve(layout_.heads_per_pass());
  for (int64_t n = 0; n < layout_.clusterings(); ++n) {
    Clustering& clustering = sequence.clusterings.emplace_back();
    clustering.affinities = Allocate<float>(clusters * item.tokens);
    clustering.offsets = Allocate<int32_t>(clusters + 1);
    clustering.members = Allocate<int32_t>(CastLayout::Slots(spec_, item.tokens).value());
    clustering.cuts = Allocate<int32_t>((sequence.tiles + 1) * clusters);
  }
  for (int64_t n = 0; n < layout_.heads_per_pass(); ++n) {
    const bool shared = sequence.clusterings.size() == 1;
    sequence.heads.push_back({&sequence.clusterings[shared ? 0 : n],
                              Allocate<float>(clusters * spec_.value_dim),
                              Allocate<int64_t>(clusters)});
  }
  tokens_ += item.tokens;
  tiles_ = std::max(tiles_, sequence.tiles);
}

absl::Status CastWave::Run() {
  const bool per_head = cast_.head_clustering == Cast::HeadClustering::kPerHead;
  const int64_t per_pass = layout_.heads_per_pass();
  if (absl::Status status = ComputeGates(); !status.ok()) return status;
  for (int64_t first = 0; first < spec_.heads; first += per_pass) {
    const int64_t heads = std::min(per_pass, spec_.heads - first);
    if (per_head || first == 0) {
      absl::Status status = FindMembers(first, per_head ? heads : 1);
      if (!status.ok()) return status;
    }
    for (int64_t tile = 0; tile < tiles_;) {
      int64_t end = tile;
      if (absl::Status status = TilesThatFit(heads, &end); !status.ok()) return status;
      if (absl::Status status = AttendInside(first, heads, tile, end); !status.ok()) return status;
      if (absl::Status status = Combine(first, heads, tile, end); !status.ok()) return status;
      tile = end;
    }
  }
  return absl::OkStatus();
}

absl::Status CastWave::FindMembers(int64_t first_head, int64_t clusterings) {
  const bool single = cast_.clustering == Cast::Clustering::kSingleAssignmentTopK;
  absl::Status status = ComputeAffinities(first_head, clusterings);
  if (status.ok()) status = single ? AssignMembers(clusterings) : SelectMembers(clusterings);
  if (status.ok()) status = CutMembers(clusterings);
  return status;
}

}  // namespace castor::attention
