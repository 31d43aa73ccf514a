// The attention of one layer: rows are projected to queries, keys and values, and attend.
//
// On a CPU a long document's heads go by some at a time, so that queries, keys and values of all of
// them are never there together: they are up to three times as wide as the rows. Heads that share
// keys and values go together. A head's results do not
// depend on which heads it goes with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/encoder/layers/qkv.h"
#include "engine/encoder/network/activations.h"
#include "engine/encoder/network/body.h"

namespace castor::encoder {

// Queries, keys and values that are there together, unless a single range of heads takes more.
// Batches of short texts stay below it: their heads go by at once.
inline constexpr int64_t kMostQkvBytes = int64_t{64} << 20;

// What rows are projected with. What is null is not there.
struct Projection {
  const Qkv& qkv;
  const LayerNorm* before = nullptr;
  const Rotation* rotation = nullptr;
  int64_t most_bytes = kMostQkvBytes;
};

// Attention of every sequence of `x`, [tokens, hidden], over itself, as `spec` says. `cast` is what
// the layer has besides, if the spec's kernel is Cast. Returns [tokens, heads * head_dim].
// Called on the device's thread; checks the control, and ends with its status.
absl::StatusOr<at::Tensor> SelfAttention(const Projection& projection, const at::Tensor& x,
                                         const attention::Spec& spec, const BodyInputs& in,
                                         const attention::CastInputs& cast = {});

// What queries, keys and values take, in the type and on the device of `like`. CAST's heads, and
// those of disentangled attention, go by `together`.
HeadBytes QkvBytes(const Qkv& qkv, const at::Tensor& like, bool together,
                   int64_t most_bytes = kMostQkvBytes);

}  // namespace castor::encoder
