// How CAST on the CPU divides a batch into waves of sequences and passes over heads, and how much
// memory that takes. Pure arithmetic on lengths, which no numbers of a request make wrap.
#pragma once

#include <cstdint>

#include "engine/attention/count.h"
#include "engine/attention/problem.h"

namespace castor::attention {

// kappa: what was asked for, or enough for all tokens, but no more than there are tokens.
int64_t CastClusterSize(const Spec& spec, int64_t tokens);

// A wave's sequences go through every stage together, so that many short ones fill the cores as
// well as one long one does; a pass is as many heads as go through them together, so that what the
// stages hand on stays small. Results depend on neither.
class CastLayout {
 public:
  // REQUIRES: spec.kernel holds Cast, and outlives this object.
  explicit CastLayout(const Spec& spec) : spec_(&spec) {}

  // Takes another sequence in, unless the wave would become too large. One sequence always fits.
  bool Add(int64_t tokens);

  int64_t heads_per_pass() const;

  // Clusterings of a sequence in a pass: one for all heads, or one for each.
  int64_t clusterings() const;

  // Members, over the pass's heads, whose results are in memory at a time. A lone sequence that has
  // more is combined some tokens at a time.
  Count rows() const;

  // Most bytes in use at a time, with `workers` threads of `scratch_floats` each.
  Count bytes(int64_t workers, Count scratch_floats) const;

  int64_t longest() const { return longest_; }  // tokens of a sequence

  // Whether there is a place for every token, where every token must have one.
  static bool HasRoom(const Spec& spec, int64_t tokens);

  static int64_t Tiles(int64_t tokens);

  // Members of all of a sequence's clusters together, at most. Count::kMost where the lists of
  // members, which count in 32 bits, cannot hold them.
  static Count Slots(const Spec& spec, int64_t tokens);

 private:
  const Cast& cast() const { return std::get<Cast>(spec_->kernel); }
  bool per_head() const { return cast().head_clustering == Cast::HeadClustering::kPerHead; }
  Count HeadBytes() const;

  const Spec* spec_;
  Count sequences_ = 0;
  Count tokens_ = 0;
  int64_t longest_ = 0;
  Count tiles_ = 0;
  Count slots_ = 0;
  Count places_ = 0;  // clusters times their size
};

}  // namespace castor::attention
