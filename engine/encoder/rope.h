// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864), by halves: element e of a query's
// or a key's head turns with element e + head_dim / 2 by an angle of position * frequency[e].
//
// Functions on tensors of the weights' device; called on the device's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/attention/count.h"
#include "engine/base/run_control.h"

namespace castor::encoder {

// 1 / theta^(2 e / head_dim), float32 [head_dim / 2] on `device`, rounded as transformers does.
// Requires an even head_dim.
at::Tensor RopeFrequencies(double theta, int64_t head_dim, at::Device device);

// Of a batch's tokens, made once for all layers that share their frequencies.
struct Rotation {
  at::Tensor cos;  // float32 [tokens, head_dim / 2]
  at::Tensor sin;

  Rotation Rows(int64_t first, int64_t count) const {
    return {cos.narrow(0, first, count), sin.narrow(0, first, count)};
  }
};

// `positions` is int64 [tokens]. Checks the control between steps.
absl::StatusOr<Rotation> RotationOf(const at::Tensor& positions, const at::Tensor& frequencies,
                                    RunControl& control);

// What a rotation takes for a token, in bytes.
attention::Count RotationBytes(int64_t head_dim);

// Turns the queries and keys of `qkv` in place: [tokens, 3 * hidden] of any floating type, queries,
// keys, values side by side. Computes in float32.
void Rotate(const Rotation& rotation, int64_t heads, const at::Tensor& qkv);

// What Rotate takes for a while, in bytes: of `rows` rows on another device, on a CPU of few.
attention::Count RotatingBytes(int64_t hidden, int64_t rows, bool cpu);

}  // namespace castor::encoder
