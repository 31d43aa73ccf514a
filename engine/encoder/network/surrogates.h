// The inputs of a CAST layer in addition to queries, keys and values (attention/cast/cast.md):
// surrogate tokens, and a gate computed from each token's row.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/encoder/network/layers.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

struct Surrogates {
  at::Tensor tokens;  // [N_c, heads, head_dim], of the weights' type
  Linear gate;        // [1, hidden]; never in 8 bits, since it moves tokens between clusters

  // The gates of the rows of `x`, [tokens, hidden], after the norm `before`: float32 [tokens].
  // Works in steps of at most `step` rows, with a checkpoint after each.
  absl::StatusOr<at::Tensor> Gates(const at::Tensor& x, const LayerNorm& before, int64_t step,
                                   RunControl& control) const;

  // Both, as kernels take them.
  attention::CastInputs Inputs(const at::Tensor& gates) const;

  // The bytes that Gates takes per row of a step, without its result.
  kernels::Count row_bytes() const;
};

// Takes the weights of a layer whose names begin with `at`. `tokens` is a complete name, `gate` one
// without ".weight" and ".bias". Errors go to the reader.
Surrogates TakeSurrogates(WeightReader& weights, const std::string& at, std::string_view tokens,
                          std::string_view gate, const BodyInfo& info);

}  // namespace castor::encoder
