#include "engine/encoder/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin_ops.h>

#include <algorithm>

namespace castor::encoder {
namespace {

// Rows whose halves stay in a core's cache while they are turned.
constexpr int64_t kTurnedRows = 64;

void Turn(const Rotation& rotation, int64_t heads, const at::Tensor& qkv) {
  const int64_t rows = qkv.size(0);
  const int64_t hidden = qkv.size(1) / 3;
  const at::Tensor pairs =
      qkv.narrow(1, 0, 2 * hidden).view({rows, 2 * heads, 2, hidden / heads / 2});
  const at::Tensor low = pairs.select(2, 0);  // [rows, 2 * heads, head_dim / 2]
  const at::Tensor high = pairs.select(2, 1);
  const at::Tensor cos = rotation.cos.unsqueeze(1);
  const at::Tensor sin = rotation.sin.unsqueeze(1);
  const at::Tensor x = low.to(at::kFloat);
  const at::Tensor y = high.to(at::kFloat);
  const at::Tensor turned_x = at::mul(x, cos).addcmul_(y, sin, -1);
  const at::Tensor turned_y = at::mul(y, cos).addcmul_(x, sin);
  low.copy_(turned_x);
  high.copy_(turned_y);
}

}  // namespace

at::Tensor RopeFrequencies(double theta, int64_t head_dim, at::Device device) {
  const at::Tensor exponents = at::arange(0, head_dim, 2, at::TensorOptions().dtype(at::kFloat));
  return at::pow(at::Scalar(theta), exponents.div(head_dim)).reciprocal_().to(device);
}

absl::StatusOr<Rotation> RotationOf(const at::Tensor& positions, const at::Tensor& frequencies,
                                    RunControl& control) {
  const int64_t tokens = positions.size(0);
  const at::TensorOptions options = frequencies.options();
  const Rotation rotation{at::empty({tokens, frequencies.size(0)}, options),
                          at::empty({tokens, frequencies.size(0)}, options)};
  const int64_t step = frequencies.device().is_cpu() ? 16384 : std::max<int64_t>(1, tokens);
  for (int64_t first = 0; first < tokens; first += step) {
    const int64_t count = std::min(step, tokens - first);
    const at::Tensor angles =
        at::outer(positions.narrow(0, first, count).to(at::kFloat), frequencies);
    const Rotation rows = rotation.Rows(first, count);
    at::_ops::cos_out::call(angles, const_cast<at::Tensor&>(rows.cos));
    at::_ops::sin_out::call(angles, const_cast<at::Tensor&>(rows.sin));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return rotation;
}

attention::Count RotationBytes(int64_t head_dim) {
  return attention::Count(head_dim) * static_cast<int64_t>(sizeof(float));
}

void Rotate(const Rotation& rotation, int64_t heads, const at::Tensor& qkv) {
  const int64_t step = qkv.device().is_cpu() ? kTurnedRows : std::max<int64_t>(1, qkv.size(0));
  for (int64_t first = 0; first < qkv.size(0); first += step) {
    const int64_t count = std::min(step, qkv.size(0) - first);
    Turn(rotation.Rows(first, count), heads, qkv.narrow(0, first, count));
  }
}

attention::Count RotatingBytes(int64_t hidden, int64_t rows, bool cpu) {
  // Both halves as float32, where they are not, and what they become.
  return attention::Count(4) * hidden * static_cast<int64_t>(sizeof(float)) *
         (cpu ? std::min(rows, kTurnedRows) : rows);
}

}  // namespace castor::encoder
