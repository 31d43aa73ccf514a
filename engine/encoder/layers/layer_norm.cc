#include "engine/encoder/layers/layer_norm.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>

#include <algorithm>
#include <utility>

#include "engine/attention/parallel.h"
#include "engine/base/run_control.h"

namespace castor::encoder {
namespace {

using kernels::NormKernel;

const NormKernel* FindNormKernel(const at::Tensor& weight) {
  if (!weight.device().is_cpu()) return nullptr;
  for (const NormKernel* kernel : kernels::kNormKernels) {
    if (kernel->runs_here()) return kernel;
  }
  return nullptr;
}

}  // namespace

LayerNorm::LayerNorm(at::Tensor weight, at::Tensor bias, double epsilon, NormKind kind)
    : weight_(std::move(weight)), bias_(std::move(bias)), epsilon_(epsilon), kind_(kind) {
  if (!weight_.defined()) return;  // the reader has an error
  kernel_ = FindNormKernel(weight_);
  if (kernel_ != nullptr) weight_ = weight_.to(at::kFloat);
  if (kind_ == NormKind::kRmsNormLessOne) weight_ = weight_.add(1);
  if (kernel_ == nullptr) return;
  if (bias_.defined()) bias_ = bias_.to(at::kFloat);
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  if (kernel_ == nullptr) return NormByLibTorch(x);
  const at::Tensor rows = x.contiguous();
  at::Tensor out = at::empty_like(rows);
  Run(rows, {}, out);
  return out;
}

void LayerNorm::AddNorm(const at::Tensor& x, const at::Tensor& residual,
                        const at::Tensor& out) const {
  if (kernel_ != nullptr) return Run(x, residual, out);
  out.copy_(NormByLibTorch(x.add_(residual)));
}

at::Tensor LayerNorm::NormByLibTorch(const at::Tensor& x) const {
  if (kind_ == NormKind::kLayerNorm) {
    return at::layer_norm(x, weight_.sizes(), weight_, bias_, epsilon_);
  }
  return at::rms_norm(x, weight_.sizes(), weight_, epsilon_);
}

void LayerNorm::Run(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& out) const {
  const kernels::NormShape shape{
      .element = x.scalar_type() == at::kBFloat16 ? kernels::Element::kBFloat16
                                                  : kernels::Element::kFloat32,
      .hidden = weight_.size(0),
      .weight = weight_.const_data_ptr<float>(),
      .bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr,
      .epsilon = static_cast<float>(epsilon_),
      .centered = kind_ == NormKind::kLayerNorm,
  };
  constexpr int64_t kTaskRows = 16;
  constexpr double kOperations = 12;  // per element
  const int64_t rows = x.size(0);
  const int64_t row_bytes = shape.hidden * static_cast<int64_t>(x.element_size());
  const auto* from = static_cast<const std::byte*>(x.const_data_ptr());
  const auto* other =
      residual.defined() ? static_cast<const std::byte*>(residual.const_data_ptr()) : nullptr;
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  const auto run = [&](int, int64_t task) {
    const int64_t first = task * kTaskRows;
    const int64_t at = first * row_bytes;
    kernel_->run(shape, from + at, other == nullptr ? nullptr : other + at, to + at,
                 std::min(kTaskRows, rows - first));
  };
  // RunToEnd never fails.
  (void)attention::ParallelFor(
      (rows + kTaskRows - 1) / kTaskRows,
      kOperations * static_cast<double>(rows) * static_cast<double>(shape.hidden), RunToEnd(), run);
}

}  // namespace castor::encoder
