// The offsets of a batch's sequences after its requests are packed into one problem.
// Pure; any thread may call it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/problem.h"

namespace castor {

// Offsets as in Problem, over the sequences of all requests.
struct PackedOffsets {
  std::vector<int32_t> cu_seqlens_q = {0};
  std::vector<int32_t> cu_seqlens_k = {0};
};

// INTERNAL when a request's tensors have gaps between tokens, or the offsets overflow int32.
absl::StatusOr<PackedOffsets> PackOffsets(const attention::Spec& spec,
                                          std::span<const attention::Problem> requests);

}  // namespace castor
