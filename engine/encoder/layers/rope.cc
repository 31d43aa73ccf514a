#include "engine/encoder/layers/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin_ops.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "engine/attention/parallel.h"
#include "engine/base/run_control.h"
#include "engine/kernels/cpu/linear/row_parts.h"

namespace castor::encoder {
namespace {

// The halves of this many rows stay in a core's cache while they are rotated.
constexpr int64_t kRotatedRows = 64;

// The rows whose angles a CPU computes between two checkpoints.
constexpr int64_t kAngleRows = 16384;

void RotateHalves(const Rotation& rotation, int64_t heads, const at::Tensor& rows) {
  const int64_t half = rotation.cos.size(1);
  const at::Tensor pairs = rows.narrow(1, 0, heads * 2 * half).view({rows.size(0), heads, 2, half});
  const at::Tensor low = pairs.select(2, 0);  // [rows, heads, head_dim / 2]
  const at::Tensor high = pairs.select(2, 1);
  const at::Tensor cos = rotation.cos.unsqueeze(1);
  const at::Tensor sin = rotation.sin.unsqueeze(1);
  const at::Tensor x = low.to(at::kFloat);
  const at::Tensor y = high.to(at::kFloat);
  const at::Tensor rotated_x = at::mul(x, cos).addcmul_(y, sin, -1);
  const at::Tensor rotated_y = at::mul(y, cos).addcmul_(x, sin);
  low.copy_(rotated_x);
  high.copy_(rotated_y);
}

}  // namespace

at::Tensor RopeFrequencies(const RopeConfig& config, int64_t head_dim, int64_t length,
                           at::Device device) {
  const auto size = static_cast<double>(head_dim);
  double theta = config.theta;
  const bool mixed = config.ntk_mixed.has_value();
  if (!mixed) theta *= config.ntk_factor;
  if (config.dynamic_factor > 0 && length > config.trained) {
    const double growth =
        config.dynamic_factor * static_cast<double>(length) / static_cast<double>(config.trained) -
        (config.dynamic_factor - 1);
    theta *= std::pow(growth, size / (size - 2));
  }
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor exponents = at::arange(0, head_dim, 2, options).div_(size);
  at::Tensor frequencies = at::pow(at::Scalar(theta), exponents).reciprocal_();
  if (config.ntk_factor != 1 && !mixed) {
    frequencies.div_(std::pow(config.ntk_factor, 2 / size));
  } else if (config.ntk_factor != 1) {
    const double slope = std::log(config.ntk_factor) / std::pow(size / 2, *config.ntk_mixed);
    frequencies.div_(
        at::arange(1, head_dim / 2 + 1, options).pow_(*config.ntk_mixed).mul_(slope).exp_());
  }
  if (config.llama3.has_value()) {
    const auto& [factor, low, high, trained] = *config.llama3;
    const at::Tensor waves = frequencies.reciprocal().mul_(2 * std::numbers::pi);
    const at::Tensor kept =
        waves.reciprocal_().mul_(trained).sub_(low).div_(high - low).clamp_(0, 1);
    frequencies = kept.neg().add_(1).mul_(frequencies).div_(factor).add_(kept.mul(frequencies));
  }
  return frequencies.to(device);
}

Rope::Rope(const RopeConfig& config, int64_t head_dim, at::Device device)
    : config_(config),
      head_dim_(head_dim),
      frequencies_(RopeFrequencies(config, head_dim, /*length=*/1, device)) {}

absl::StatusOr<Rotation> Rope::RotationOf(const at::Tensor& positions,
                                          std::span<const int32_t> cu_seqlens,
                                          RunControl& control) const {
  const int64_t tokens = positions.size(0);
  const at::TensorOptions options = frequencies_.options();
  const int64_t half = frequencies_.size(0);
  const Rotation rotation{at::empty({tokens, half}, options), at::empty({tokens, half}, options)};
  const auto fill = [&](int64_t begin, int64_t end, const at::Tensor& frequencies) {
    const int64_t step = frequencies.device().is_cpu() ? kAngleRows : std::max<int64_t>(1, tokens);
    for (int64_t first = begin; first < end; first += step) {
      const int64_t count = std::min(step, end - first);
      const at::Tensor angles =
          at::outer(positions.narrow(0, first, count).to(at::kFloat), frequencies);
      const Rotation rows = rotation.Rows(first, count);
      at::_ops::cos_out::call(angles, const_cast<at::Tensor&>(rows.cos));
      at::_ops::sin_out::call(angles, const_cast<at::Tensor&>(rows.sin));
      if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
    }
    return absl::OkStatus();
  };
  // Adjacent sequences without dynamic scaling share a call; each other sequence has its own.
  int64_t begin = 0;
  for (size_t s = 0; config_.dynamic_factor > 0 && s + 1 < cu_seqlens.size(); ++s) {
    const int64_t first = cu_seqlens[s], end = cu_seqlens[s + 1];
    if (end - first <= config_.trained) continue;
    if (absl::Status status = fill(begin, first, frequencies_); !status.ok()) return status;
    const at::Tensor own = RopeFrequencies(config_, head_dim_, end - first, frequencies_.device());
    if (absl::Status status = fill(first, end, own); !status.ok()) return status;
    begin = end;
  }
  if (absl::Status status = fill(begin, tokens, frequencies_); !status.ok()) return status;
  return rotation;
}

kernels::Count RotationBytes(int64_t head_dim) {
  return kernels::Count(head_dim) * static_cast<int64_t>(sizeof(float));
}

void Rotate(const Rotation& rotation, int64_t heads, const at::Tensor& rows) {
  if (!RotateRows(rows, heads, rotation.cos, rotation.sin)) RotateByLibTorch(rotation, heads, rows);
}

void RotateByLibTorch(const Rotation& rotation, int64_t heads, const at::Tensor& rows) {
  const int64_t step = rows.device().is_cpu() ? kRotatedRows : std::max<int64_t>(1, rows.size(0));
  for (int64_t first = 0; first < rows.size(0); first += step) {
    const int64_t count = std::min(step, rows.size(0) - first);
    RotateHalves(rotation.Rows(first, count), heads, rows.narrow(0, first, count));
  }
}

kernels::Count RotatingBytes(int64_t width, int64_t rows, bool cpu) {
  // Both halves in float32, and their results.
  return kernels::Count(2) * width * static_cast<int64_t>(sizeof(float)) *
         (cpu ? std::min(rows, kRotatedRows) : rows);
}

namespace {

using kernels::RowPartsKernel;

const RowPartsKernel* FindRowPartsKernel(const at::Tensor& rows) {
  if (!rows.device().is_cpu()) return nullptr;
  for (const RowPartsKernel* kernel : kernels::kRowPartsKernels) {
    if (kernel->runs_here()) return kernel;
  }
  return nullptr;
}

kernels::Element PartsElement(const at::Tensor& rows) {
  return rows.scalar_type() == at::kBFloat16 ? kernels::Element::kBFloat16
                                             : kernels::Element::kFloat32;
}

// Calls f(row) for all rows; a call costs `operations`.
template <typename F>
void ForRows(int64_t rows, double operations, F f) {
  constexpr int64_t kTaskRows = 16;
  const auto run = [&](int, int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * kTaskRows);
    for (int64_t r = task * kTaskRows; r < end; ++r) f(r);
  };
  // RunToEnd never fails.
  (void)attention::ParallelFor((rows + kTaskRows - 1) / kTaskRows,
                               operations * static_cast<double>(rows), RunToEnd(), run);
}

}  // namespace

void MultiplyRows(const at::Tensor& y, const at::Tensor& x) {
  const RowPartsKernel* kernel = FindRowPartsKernel(y);
  if (kernel == nullptr) {
    y.mul_(x);
    return;
  }
  constexpr double kOperations = 4;  // per element; memory is the limit
  const int64_t width = y.size(1);
  const int64_t bytes = width * static_cast<int64_t>(y.element_size());
  auto* to = static_cast<std::byte*>(y.mutable_data_ptr());
  const auto* from = static_cast<const std::byte*>(x.const_data_ptr());
  ForRows(y.size(0), kOperations * static_cast<double>(width), [&](int64_t r) {
    kernel->multiply(PartsElement(y), to + r * bytes, from + r * bytes, width);
  });
}

bool RotateRows(const at::Tensor& rows, int64_t heads, const at::Tensor& cos,
                const at::Tensor& sin) {
  const RowPartsKernel* kernel = FindRowPartsKernel(rows);
  if (kernel == nullptr) return false;
  constexpr double kOperations = 12;  // per pair
  const int64_t half = cos.size(1);
  const int64_t stride = rows.stride(0) * static_cast<int64_t>(rows.element_size());
  auto* data = static_cast<std::byte*>(rows.mutable_data_ptr());
  const auto* const cosines = cos.const_data_ptr<float>();
  const auto* const sines = sin.const_data_ptr<float>();
  ForRows(rows.size(0), kOperations * static_cast<double>(heads * half), [&](int64_t r) {
    kernel->rotate(PartsElement(rows), data + r * stride, heads, half, cosines + r * half,
                   sines + r * half);
  });
  return true;
}

}  // namespace castor::encoder
