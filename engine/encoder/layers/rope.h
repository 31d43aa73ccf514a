// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864), by halves: element e of a query's
// or a key's head turns with element e + head_dim / 2 by an angle of position * frequency[e].
//
// Functions on tensors of the weights' device; called on the device's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "engine/base/run_control.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

// How a family's frequencies come about: 1 / theta^(2 e / head_dim), unless they are scaled.
struct RopeConfig {
  double theta = 10'000;

  // NTK scaling by a factor, whatever a sequence's length: theta grows by the factor, and all
  // frequencies fall by factor^(2 / head_dim). Mixed, with an exponent b: theta stays, and
  // frequency e falls by factor^(((e + 1) / (head_dim / 2))^b). 1: none.
  double ntk_factor = 1;
  std::optional<double> ntk_mixed = {};

  // Dynamic NTK: in a sequence longer than those that the model was trained with, theta grows with
  // the length. 0: none. Needs a head_dim of more than 2.
  double dynamic_factor = 0;
  int64_t trained = 0;  // tokens
};

// Of a sequence of `length` tokens, float32 [head_dim / 2] on `device`, rounded as transformers
// does. Requires an even head_dim.
at::Tensor RopeFrequencies(const RopeConfig& config, int64_t head_dim, int64_t length,
                           at::Device device);

// Of a batch's tokens, made once for all layers that share their frequencies.
struct Rotation {
  at::Tensor cos;  // float32 [tokens, head_dim / 2]
  at::Tensor sin;

  Rotation Rows(int64_t first, int64_t count) const {
    return {cos.narrow(0, first, count), sin.narrow(0, first, count)};
  }
};

// The rotations of a model's layers.
class Rope {
 public:
  Rope() = default;
  Rope(const RopeConfig& config, int64_t head_dim, at::Device device);

  // `positions` is int64 [tokens], those of the sequences that begin at `cu_seqlens`. Checks the
  // control between steps.
  absl::StatusOr<Rotation> Of(const at::Tensor& positions, std::span<const int32_t> cu_seqlens,
                              RunControl& control) const;

 private:
  RopeConfig config_;
  int64_t head_dim_ = 0;
  at::Tensor frequencies_;  // of sequences that nothing is scaled for
};

// What a rotation takes for a token, in bytes.
kernels::Count RotationBytes(int64_t head_dim);

// Turns the first `heads` heads of each row in place, which are queries and keys. The rows are of
// any floating type. Computes in float32.
void Rotate(const Rotation& rotation, int64_t heads, const at::Tensor& rows);

// The same where there is no kernel for it.
void RotateSlowly(const Rotation& rotation, int64_t heads, const at::Tensor& rows);

// What Rotate takes for a while, in bytes: of `rows` rows on another device; at most of few on a
// CPU, where mostly it takes nothing. `width` is that of the heads that are turned.
kernels::Count RotatingBytes(int64_t width, int64_t rows, bool cpu);

// What layers do to rows between products, in place, cut over a CPU's team of threads
// (kernels/cpu/row_parts.h). Elsewhere it is LibTorch's.
//
// Called on the device's engine thread.

// y *= x: both [rows, width], contiguous, float32 or bfloat16.
void MultiplyRows(const at::Tensor& y, const at::Tensor& x);

// Turns the first `heads` heads of each row: element e of a head, of as many as `cos` has columns,
// with element e + half by the row's angle e. `rows` is [rows, any], each contiguous, float32 or
// bfloat16; `cos` and `sin` are [rows, half], contiguous, float32. False, and nothing is done,
// without a kernel.
bool TurnRows(const at::Tensor& rows, int64_t heads, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace castor::encoder
