// Turns a caller's attention request into a checked problem: every rule on shapes, sizes, lengths
// and kernel parameters, in one place, before anything is allocated or copied.
//
// Pure functions of their arguments; any thread may call them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/cast/cast_layer.h"
#include "engine/attention/problem.h"
#include "engine/attention/shapes.h"
#include "engine/attention/variants.h"
#include "engine/request.h"

namespace castor::attention {

// A request that passed: everything that a kernel launch needs but the tensors.
struct Resolved {
  Spec spec;  // defaults filled in; Automatic replaced by its choice; Cast without its tensors
  std::shared_ptr<const CastLayer> cast_layer;  // the one that Cast names

  // Offsets of the sequences' first tokens, and the total: sequences + 1 entries each.
  std::vector<int32_t> cu_seqlens_q;
  std::vector<int32_t> cu_seqlens_k;

  std::vector<Place> places;  // Problem::places, if the spec is placed

  // [tokens, heads, value_dim], or [batch, tokens, heads, value_dim] as the query came.
  std::vector<int64_t> output_shape;

  int64_t query_tokens = 0;   // over all sequences
  int64_t key_tokens = 0;     // over all sequences
  int64_t staging_bytes = 0;  // of all input tensors and the outputs, without alignment gaps
};

// Checks `request` against the contract of proto/castor/v1/attention.proto and against what
// `variants` can run. Errors:
//   MODEL_NOT_FOUND       cast.layer is unknown to `find_layer`;
//   INVALID_FIELD         with the field's path as on the wire, such as "query.shape[2]";
//   NOT_SERVED            the kernel is in the contract, but `variants` has no row for it;
//   KERNEL_NOT_AVAILABLE  it has rows, but none for this dtype and these dimensions, or for an
//                         option of it, whose path the message begins with.
// Tensor contents are not looked at (see finite.h). Allocates offsets and places only; the
// number of sequences is checked first.
absl::StatusOr<Resolved> Resolve(const AttentionRequest& request, std::span<const Variant> variants,
                                 FindCastLayer find_layer, int64_t max_sequences);

// ---- The ranges of the kernels' parameters, as proto/castor/v1/kernel.proto states them.

// INVALID_FIELD with the path of the parameter, such as "clustered.bits", when it is out of range.
absl::Status CheckParameters(const Kernel& kernel);

// The kernel itself with parameters in range, or for Automatic the most exact one that it allows,
// with default parameters: what runs where no cost model chooses (automatic.h). CAST is never
// chosen, since only the caller has its surrogate tokens.
absl::StatusOr<Kernel> ChooseKernel(const Kernel& kernel);

// ---- The request's changes to its scores: positions, a softcap, biases of keys.

// The bound on softcaps, and on biases that add up in a score: their sum fits float32.
inline constexpr double kMostBias = 1e30;

// Checks these fields, and that the kernel of `resolved`, whose offsets are known, honours them.
// Fills in the rest of its spec and the places, and adds the tensors' bytes. The spec's biases do
// not point to the request's tensor yet, and to its slopes where they are. Pure.
absl::Status ResolveScores(const AttentionRequest& request, const Geometry& geometry,
                           Resolved* resolved);

}  // namespace castor::attention
