// What the two ways of computing vanilla attention on the CPU share: see vanilla.md.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/attention/problem.h"
#include "engine/base/run_control.h"
#include "engine/kernels/cpu/attention/few_rows.h"

namespace castor::attention {

// A sequence of a problem.
struct Sequence {
  const Problem* problem;
  int64_t query_offset;  // its first token
  int64_t queries;
  int64_t key_offset;
  kernels::FlashPlaces places;
};

// `group` heads of queries, from `head` on, which share keys and values.
kernels::FlashHead HeadOf(const Spec& spec, const Sequence& sequence, int64_t head, int64_t group);

// True for sequences of RunFewRows. It depends neither on the batch nor on which heads share keys,
// and so neither do a sequence's bytes.
bool HasFewRows(const Spec& spec, int64_t queries, int64_t keys);

// Computes `sequences`, all with few rows.
absl::Status RunFewRows(const kernels::FewRowsKernel& kernel, const kernels::FlashShape& shape,
                        const Spec& spec, std::span<const Sequence> sequences, RunControl& control);

// The most floats that RunFewRows allocates for those of the sequences that have few rows.
Count FewRowsFloats(const kernels::FewRowsKernel& kernel, const kernels::FlashShape& shape,
                    const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                    std::span<const int32_t> cu_seqlens_k);

}  // namespace castor::attention
