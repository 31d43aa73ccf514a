#include "engine/attention/cast_layout.h"

#include <algorithm>

#include "engine/kernels/cpu/cast.h"

namespace castor::attention {
namespace {

// What the sequences of a wave may take, unless there is but one: enough work to keep the threads
// busy between two waits, not so much that it has left the caches before the next stage.
constexpr int64_t kWaveBytes = int64_t{16} << 20;

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kIndex = sizeof(int32_t);
constexpr int64_t kClaim = sizeof(uint64_t);

bool IsSingle(const Spec& spec) {
  return std::get<Cast>(spec.kernel).clustering == Cast::Clustering::kSingleAssignmentTopK;
}

}  // namespace

int64_t CastClusterSize(const Spec& spec, int64_t tokens) {
  const int64_t asked = std::get<Cast>(spec.kernel).cluster_size;
  const int64_t size = asked > 0 ? asked : (tokens + spec.surrogates - 1) / spec.surrogates;
  return std::min(size, tokens);
}

int64_t CastLayout::Tiles(int64_t tokens) {
  return (tokens + kernels::kCastTokens - 1) / kernels::kCastTokens;
}

int64_t CastLayout::Slots(const Spec& spec, int64_t tokens) {
  return IsSingle(spec) ? tokens : spec.surrogates * CastClusterSize(spec, tokens);
}

bool CastLayout::HasRoom(const Spec& spec, int64_t tokens) {
  return !IsSingle(spec) || spec.surrogates * CastClusterSize(spec, tokens) >= tokens;
}

bool CastLayout::Add(int64_t tokens) {
  CastLayout with = *this;
  ++with.sequences_;
  with.tokens_ += tokens;
  with.longest_ = std::max(longest_, tokens);
  with.tiles_ += Tiles(tokens);
  with.slots_ += Slots(*spec_, tokens);
  with.places_ += spec_->surrogates * CastClusterSize(*spec_, tokens);
  const bool fits = with.bytes(/*workers=*/0, /*scratch_floats=*/0) <= kWaveBytes &&
                    with.heads_per_pass() == spec_->heads;
  if (sequences_ > 0 && !fits) return false;
  *this = with;
  return true;
}

// What a head more in a pass takes.
int64_t CastLayout::HeadBytes() const {
  const int64_t results = (slots_ + sequences_ * spec_->surrogates) * spec_->value_dim * kFloat;
  return results + (per_head() ? tokens_ * spec_->surrogates * kFloat : 0);
}

int64_t CastLayout::heads_per_pass() const {
  const int64_t most = std::clamp<int64_t>(kWaveBytes / HeadBytes(), 1, spec_->heads);
  const int64_t passes = (spec_->heads + most - 1) / most;
  return (spec_->heads + passes - 1) / passes;
}

int64_t CastLayout::clusterings() const { return per_head() ? heads_per_pass() : 1; }

int64_t CastLayout::rows() const {
  const int64_t all = heads_per_pass() * slots_;
  const int64_t most = kWaveBytes / (spec_->value_dim * kFloat);
  // A tile's tokens can all be in every cluster.
  const int64_t least = std::min(kernels::kCastTokens, longest_) * spec_->surrogates;
  return std::min(all, std::max(most, least));
}

int64_t CastLayout::bytes(int64_t workers, int64_t scratch_floats) const {
  const int64_t clusters = spec_->surrogates;
  const int64_t per_pass = heads_per_pass();
  const int64_t lists = clusterings();
  int64_t bytes = 3 * tokens_ * kFloat;                                               // gates
  bytes += sequences_ * spec_->heads * clusters * spec_->head_dim * kFloat;           // surrogates
  bytes += lists * tokens_ * clusters * kFloat;                                       // affinities
  bytes += lists * (slots_ + sequences_ * (clusters + 1)) * kIndex;                   // members
  bytes += lists * (tiles_ + sequences_) * clusters * kIndex;                         // cuts
  bytes += sequences_ * per_pass * clusters * static_cast<int64_t>(sizeof(int64_t));  // first rows
  bytes += sequences_ * per_pass * clusters * spec_->value_dim * kFloat;              // summaries
  bytes += rows() * spec_->value_dim * kFloat;
  bytes += 64 * sequences_ * (4 + 4 * lists + 2 * per_pass);  // alignment
  if (IsSingle(*spec_)) {
    // SingleAssignment's claims and lists of tokens.
    bytes += lists * (places_ * kClaim + tokens_ * 3 * kIndex);
    bytes += lists * sequences_ * (clusters + 1) * (kClaim + 2 * kIndex);
  }
  return bytes + workers * (scratch_floats * kFloat + 2 * longest_ * kIndex + 128);
}

}  // namespace castor::attention
