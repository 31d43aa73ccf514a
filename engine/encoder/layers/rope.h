// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864), by halves: elements e and
// e + head_dim / 2 of a query's or key's head are rotated by the angle position * frequency[e].
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

// A family's frequencies: 1 / theta^(2 e / head_dim), unless they are scaled.
struct RopeConfig {
  double theta = 10'000;

  // NTK scaling by a factor, whatever a sequence's length: theta grows by the factor, and all
  // frequencies fall by factor^(2 / head_dim). Mixed, with an exponent b: theta stays, and
  // frequency e falls by factor^(((e + 1) / (head_dim / 2))^b). 1: none.
  double ntk_factor = 1;
  std::optional<double> ntk_mixed = {};

  // Dynamic NTK: in a sequence longer than those of training, theta grows with the length. 0: none.
  // Needs a head_dim of more than 2.
  double dynamic_factor = 0;
  int64_t trained = 0;  // tokens

  // Llama 3's: frequencies with fewer than `low` turns in the length of training fall by the
  // factor, those with more than `high` stay, and those between are interpolated.
  struct Llama3 {
    double factor = 1;
    double low = 1;
    double high = 4;
    double trained = 8192;  // tokens
  };
  std::optional<Llama3> llama3 = {};
};

// The frequencies for a sequence of `length` tokens, float32 [head_dim / 2] on `device`, rounded as
// by transformers. Requires an even head_dim.
at::Tensor RopeFrequencies(const RopeConfig& config, int64_t head_dim, int64_t length,
                           at::Device device);

// The angles of a batch's tokens, computed once for all layers with the same frequencies.
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

  // `positions`: int64 [tokens], of the sequences between `cu_seqlens`. Checks the control between
  // steps.
  absl::StatusOr<Rotation> RotationOf(const at::Tensor& positions,
                                      std::span<const int32_t> cu_seqlens,
                                      RunControl& control) const;

 private:
  RopeConfig config_;
  int64_t head_dim_ = 0;
  at::Tensor frequencies_;  // of sequences without dynamic scaling
};

// The bytes of a token's Rotation.
kernels::Count RotationBytes(int64_t head_dim);

// Rotates the first `heads` heads of each row in place: queries and keys. Rows may have any
// floating type; angles and products are float32.
void Rotate(const Rotation& rotation, int64_t heads, const at::Tensor& rows);

// The same by LibTorch, without a kernel.
void RotateByLibTorch(const Rotation& rotation, int64_t heads, const at::Tensor& rows);

// An upper bound of the bytes that Rotate allocates, for heads of `width` elements together: for
// `rows` rows on a GPU, for a few rows on a CPU. With a kernel it allocates none.
kernels::Count RotatingBytes(int64_t width, int64_t rows, bool cpu);

// Operations on rows between products, in place. A CPU's threads share them
// (kernels/cpu/linear/row_parts.h); elsewhere LibTorch computes them.
//
// Called on the device's engine thread.

// y *= x: both [rows, width], contiguous, float32 or bfloat16.
void MultiplyRows(const at::Tensor& y, const at::Tensor& x);

// Rotates the first `heads` heads of each row: elements e and e + half of a head by the row's angle
// e. `rows` is [rows, any], each row contiguous, float32 or bfloat16; `cos` and `sin` are [rows,
// half], contiguous, float32. Returns false, and does nothing, without a kernel.
bool RotateRows(const at::Tensor& rows, int64_t heads, const at::Tensor& cos,
                const at::Tensor& sin);

}  // namespace castor::encoder
