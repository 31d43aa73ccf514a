#include "engine/device/cuda/packing/packed_offsets.h"

#include <limits>

#include "engine/base/error.h"

namespace castor {
namespace {

using attention::Problem;
using attention::Spec;

// Appends a request's offsets, shifted; false when they overflow int32.
bool Append(std::span<const int32_t> offsets, std::vector<int32_t>& all) {
  const int64_t base = all.back();
  if (base + offsets.back() > std::numeric_limits<int32_t>::max()) return false;
  for (size_t s = 1; s < offsets.size(); ++s) {
    all.push_back(static_cast<int32_t>(base + offsets[s]));
  }
  return true;
}

// Staging memory holds each tensor without gaps.
bool IsDense(const Spec& spec, const Problem& request) {
  return request.query_stride == spec.heads * spec.head_dim &&
         request.key_stride == spec.key_row() && request.value_stride == spec.value_stride() &&
         request.output_stride == spec.heads * spec.value_dim;
}

}  // namespace

absl::StatusOr<PackedOffsets> PackOffsets(const Spec& spec, std::span<const Problem> requests) {
  PackedOffsets packed;
  for (const Problem& request : requests) {
    if (!IsDense(spec, request)) return MakeError(Reason::kInternal, "staging memory has gaps");
    if (!Append(request.cu_seqlens_q, packed.cu_seqlens_q) ||
        !Append(request.cu_seqlens_k, packed.cu_seqlens_k)) {
      return MakeError(Reason::kInternal, "a batch of more than 2^31 tokens");
    }
  }
  return packed;
}

}  // namespace castor
