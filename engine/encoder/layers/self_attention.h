// The attention of one layer: rows are projected to queries, keys and values, and attend.
//
// On a CPU, a long document's heads are processed some at a time, so that queries, keys and values
// of all heads, up to three times as wide as the rows, are never in memory together. Heads that
// share keys and values are processed together. A head's result does not depend on the other heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/encoder/layers/qkv.h"
#include "engine/encoder/network/activations.h"
#include "engine/encoder/network/body.h"

namespace castor::encoder {

// The bytes of queries, keys and values in memory together, unless the smallest range of heads
// takes more. Batches of short texts stay below: all their heads are processed at once.
inline constexpr int64_t kMostQkvBytes = int64_t{64} << 20;

// How rows are projected. Null members are absent.
struct Projection {
  const Qkv& qkv;
  const LayerNorm* before = nullptr;
  const Rotation* rotation = nullptr;
  int64_t most_bytes = kMostQkvBytes;
};

// Attention of every sequence of `x`, [tokens, hidden], over itself, as `spec` says. `cast`: the
// layer's further inputs, if the spec's kernel is Cast. Returns [tokens, heads * head_dim]. Called
// on the device's thread; checks the control, and ends with its status.
absl::StatusOr<at::Tensor> SelfAttention(const Projection& projection, const at::Tensor& x,
                                         const attention::Spec& spec, const BodyInputs& in,
                                         const attention::CastInputs& cast = {});

// The bytes of queries, keys and values, with the type and device of `like`. `together`: all heads
// are processed at once, as by CAST and disentangled attention.
HeadBytes QkvBytes(const Qkv& qkv, const at::Tensor& like, bool together,
                   int64_t most_bytes = kMostQkvBytes);

}  // namespace castor::encoder
