#include "engine/attention/cast/cast_layout.h"

#include <algorithm>
#include <limits>

#include "engine/kernels/assignment.h"
#include "engine/kernels/cpu/cast/cast.h"

namespace castor::attention {
namespace {

// The most memory for a wave of more than one sequence: enough work to keep the threads busy
// between two stages, but not so much that it leaves the caches before the next stage.
constexpr int64_t kWaveBytes = int64_t{16} << 20;

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kIndex = sizeof(int32_t);
constexpr int64_t kClaim = sizeof(uint64_t);
// Objects of cast_wave.h.
constexpr int64_t kSequence = 320;  // with the blocks of its two lists
constexpr int64_t kClustering = 32;
constexpr int64_t kHead = 24;
constexpr int64_t kTask = 24;
constexpr int64_t kInsideTask = 88;
constexpr int64_t kAssignment = 320;  // a SingleAssignment, with the blocks of its lists

bool IsSingle(const Spec& spec) {
  return std::get<Cast>(spec.kernel).clustering == Cast::Clustering::kSingleAssignmentTopK;
}

}  // namespace

int64_t CastClusterSize(const Spec& spec, int64_t tokens) {
  const int64_t asked = std::get<Cast>(spec.kernel).cluster_size;
  return std::min(asked > 0 ? asked : Count(tokens).Units(spec.surrogates).value(), tokens);
}

int64_t CastLayout::Tiles(int64_t tokens) {
  return Count(tokens).Units(kernels::kCastTokens).value();
}

Count CastLayout::Slots(const Spec& spec, int64_t tokens) {
  if (IsSingle(spec)) return tokens;
  const Count slots = Count(spec.surrogates) * CastClusterSize(spec, tokens);
  return slots > std::numeric_limits<int32_t>::max() ? Count::kMost : slots;
}

bool CastLayout::HasRoom(const Spec& spec, int64_t tokens) {
  return !IsSingle(spec) || Count(spec.surrogates) * CastClusterSize(spec, tokens) >= tokens;
}

bool CastLayout::Add(int64_t tokens) {
  CastLayout with = *this;
  with.sequences_ += 1;
  with.tokens_ += tokens;
  with.longest_ = std::max(longest_, tokens);
  with.tiles_ += Tiles(tokens);
  with.slots_ += Slots(*spec_, tokens);
  with.places_ += Count(spec_->surrogates) * CastClusterSize(*spec_, tokens);
  const Count bytes = with.bytes(/*workers=*/0, /*scratch_floats=*/0) + with.list_bytes();
  const bool fits = bytes <= kWaveBytes && with.heads_per_pass() == spec_->heads;
  if (sequences_ > 0 && !fits) return false;
  *this = with;
  return true;
}

// The memory per head in a pass.
Count CastLayout::HeadBytes() const {
  const Count results = (slots_ + sequences_ * spec_->surrogates) * spec_->value_dim * kFloat;
  return results + (per_head() ? tokens_ * spec_->surrogates * kFloat : 0);
}

int64_t CastLayout::heads_per_pass() const {
  const int64_t most = std::clamp<int64_t>(kWaveBytes / HeadBytes().value(), 1, spec_->heads);
  const Count passes = Count(spec_->heads).Units(most);
  return Count(spec_->heads).Units(passes.value()).value();
}

int64_t CastLayout::clusterings() const { return per_head() ? heads_per_pass() : 1; }

Count CastLayout::rows() const {
  const Count all = heads_per_pass() * slots_;
  const Count most = kWaveBytes / (Count(spec_->value_dim) * kFloat).value();
  // A tile's tokens can all be in every cluster.
  const Count least = Count(std::min(kernels::kCastTokens, longest_)) * spec_->surrogates;
  return std::min(all, std::max(most, least));
}

Count CastLayout::inside_tasks() const {
  return sequences_ * spec_->surrogates * heads_per_pass() + rows().Units(kernels::kCastQueries);
}

Count CastLayout::list_bytes() const {
  const Count clusters = spec_->surrogates;
  const Count per_pass = heads_per_pass();
  const Count lists = clusterings();
  // One list of tasks at a time: inside clusters, or of tiles or clusters.
  Count bytes = std::max(inside_tasks() * kInsideTask,
                         std::max(tiles_ * per_pass, sequences_ * lists * clusters) * kTask);
  bytes += sequences_ * (kSequence + lists * kClustering + per_pass * kHead);
  if (IsSingle(*spec_)) {
    // SingleAssignment's claims and lists of tokens.
    bytes += lists * (places_ * kClaim + tokens_ * 3 * kIndex);
    bytes += lists * sequences_ * ((clusters + 1) * (kClaim + 2 * kIndex) + kAssignment);
    bytes += lists * tokens_ *
             (Count(kernels::SingleAssignment::ListLength(spec_->surrogates)) * kClaim + kIndex);
  }
  return bytes;
}

Count CastLayout::bytes(int64_t workers, Count scratch_floats) const {
  const Count clusters = spec_->surrogates;
  const Count per_pass = heads_per_pass();
  const Count lists = clusterings();
  Count bytes = 3 * tokens_ * kFloat;                                                 // gates
  bytes += sequences_ * spec_->heads * clusters * spec_->head_dim * kFloat;           // surrogates
  bytes += lists * tokens_ * clusters * kFloat;                                       // affinities
  bytes += lists * (slots_ + sequences_ * (clusters + 1)) * kIndex;                   // members
  bytes += lists * (tiles_ + sequences_) * clusters * kIndex;                         // cuts
  bytes += sequences_ * per_pass * clusters * static_cast<int64_t>(sizeof(int64_t));  // first rows
  bytes += sequences_ * per_pass * clusters * spec_->value_dim * kFloat;              // summaries
  bytes += rows() * spec_->value_dim * kFloat;
  bytes += 64 * sequences_ * (4 + 4 * lists + 2 * per_pass);  // alignment
  return bytes + workers * (scratch_floats * kFloat + Count(2 * kIndex) * longest_ + 128);
}

}  // namespace castor::attention
