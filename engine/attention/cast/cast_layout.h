// How CAST on the CPU divides a batch into waves of sequences and passes over heads, and how much
// memory that takes. Pure arithmetic on lengths; no request can make it wrap.
#pragma once

#include <cstdint>

#include "engine/attention/problem.h"
#include "engine/kernels/count.h"

namespace castor::attention {

// kappa: the requested size, or ceil(tokens / N_c) by default; never more than `tokens`.
int64_t CastClusterSize(const Spec& spec, int64_t tokens);

// The sequences of a wave go through every stage together, so that many short ones fill the cores
// as well as one long one does. The heads of a pass also go through them together; a pass is
// limited so that intermediate results stay small. Results depend on neither.
class CastLayout {
 public:
  // REQUIRES: spec.kernel holds Cast, and outlives this object.
  explicit CastLayout(const Spec& spec) : spec_(&spec) {}

  // Adds a sequence; false if the wave would become too large. One sequence always fits.
  bool Add(int64_t tokens);

  int64_t heads_per_pass() const;

  // Clusterings per sequence in a pass: one for all heads, or one for each.
  int64_t clusterings() const;

  // The number of members, over the pass's heads, whose results are in memory at a time. A lone
  // sequence that has more is combined some tokens at a time.
  Count rows() const;

  // The most tasks inside clusters at a time.
  Count inside_tasks() const;

  // Bytes of the arrays that one stage leaves for the next, with `scratch_floats` floats of scratch
  // for each of `workers` threads.
  Count bytes(int64_t workers, Count scratch_floats) const;
  // Bytes of everything else: lists of tasks, and the memory of single assignment.
  Count list_bytes() const;

  int64_t longest() const { return longest_; }  // tokens of the longest sequence

  // False if single assignment has fewer places in the clusters than there are tokens.
  static bool HasRoom(const Spec& spec, int64_t tokens);

  static int64_t Tiles(int64_t tokens);

  // The most members that a sequence's clusters have together. Count::kMost if the lists of
  // members, whose offsets are 32-bit, cannot hold them.
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
