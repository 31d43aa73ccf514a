#include "engine/encoder/layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"

namespace castor::encoder {
namespace {

absl::StatusOr<DType> TypeOf(at::ScalarType type) {
  if (type == at::kFloat) return DType::kFloat32;
  if (type == at::kBFloat16) return DType::kBFloat16;
  return MakeError(Reason::kInternal, "attention on an unexpected dtype");
}

}  // namespace

std::optional<Activation> ParseActivation(std::string_view name) {
  struct Row {
    std::string_view name;
    Activation activation;
  };
  constexpr Row kRows[] = {
      {"gelu", Activation::kGeluErf},
      {"gelu_python", Activation::kGeluErf},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"quick_gelu", Activation::kQuickGelu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"tanh", Activation::kTanh},
      {"mish", Activation::kMish},
  };
  for (const Row& row : kRows) {
    if (row.name == name) return row.activation;
  }
  return std::nullopt;
}

at::Tensor Activate(Activation activation, at::Tensor x) {
  switch (activation) {
    case Activation::kGeluErf:
      return at::gelu_(x, "none");
    case Activation::kGeluTanh:
      return at::gelu_(x, "tanh");
    case Activation::kQuickGelu:
      return x.mul_(at::sigmoid(x.mul(1.702)));
    case Activation::kRelu:
      return at::relu_(x);
    case Activation::kSilu:
      return at::silu_(x);
    case Activation::kTanh:
      return at::tanh_(x);
    case Activation::kMish:
      return at::mish_(x);
  }
  return x;
}

at::Tensor Linear::operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }

int64_t RowsOfAStep(const at::Tensor& x, int64_t weights) {
  if (!x.device().is_cpu()) return x.size(0);
  constexpr int64_t kMultiplications = 1'500'000'000;
  return std::clamp<int64_t>(kMultiplications / weights / 64 * 64, 64, 16384);
}

absl::StatusOr<at::Tensor> Project(const Linear& projection, const at::Tensor& x,
                                   RunControl& control) {
  const int64_t step = RowsOfAStep(x, projection.weight.numel());
  if (x.size(0) <= step) return projection(x);
  at::Tensor rows = at::empty({x.size(0), projection.weight.size(0)}, x.options());
  for (int64_t first = 0; first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    rows.narrow(0, first, count).copy_(projection(x.narrow(0, first, count)));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return rows;
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, epsilon);
}

at::Tensor LayerNorm::AddNorm(at::Tensor x, const at::Tensor& residual) const {
  return (*this)(x.add_(residual));
}

Linear TakeLinear(WeightReader& weights, const std::string& name, int64_t out, int64_t in) {
  return {weights.Take(name + ".weight", {out, in}), weights.Take(name + ".bias", {out})};
}

Linear TakeStackedLinear(WeightReader& weights, std::span<const std::string> names, int64_t out,
                         int64_t in) {
  const auto ending = [&](const char* end) {
    std::vector<std::string> full;
    for (const std::string& name : names) full.push_back(name + end);
    return full;
  };
  return {weights.TakeStacked(ending(".weight"), {out, in}),
          weights.TakeStacked(ending(".bias"), {out})};
}

LayerNorm TakeNorm(WeightReader& weights, const std::string& name, int64_t hidden, double epsilon) {
  return {weights.Take(name + ".weight", {hidden}), weights.Take(name + ".bias", {hidden}),
          epsilon};
}

at::Tensor TokenRows(const at::Tensor& table, const BodyInputs& in) {
  at::Tensor rows = at::index_select(table, 0, in.ids);
  for (size_t i = 0; i < in.inputs.embeddings.size(); ++i) {
    const at::Tensor& given = in.inputs.embeddings[i];
    if (given.defined()) rows.narrow(0, in.packing.first_token[i], given.size(0)).copy_(given);
  }
  return rows;
}

absl::StatusOr<at::Tensor> SelfAttention(const at::Tensor& qkv, int64_t heads,
                                         const BodyInputs& in) {
  const int64_t stride = qkv.size(1);
  const int64_t hidden = stride / 3;
  absl::StatusOr<DType> dtype = TypeOf(qkv.scalar_type());
  if (!dtype.ok()) return dtype.status();
  at::Tensor output = at::empty({qkv.size(0), hidden}, qkv.options());

  const int64_t head_dim = hidden / heads;
  const attention::Spec spec{
      .dtype = *dtype,
      .heads = heads,
      .head_dim = head_dim,
      .value_dim = head_dim,
      .softmax_scale = 1 / std::sqrt(static_cast<double>(head_dim)),
      .kernel = in.batch.kernel,
  };
  const auto* base = static_cast<const std::byte*>(qkv.const_data_ptr());
  const int64_t part = hidden * static_cast<int64_t>(qkv.element_size());  // bytes
  attention::Problem problem;
  problem.query = base;
  problem.key = base + part;
  problem.value = base + 2 * part;
  problem.output = static_cast<std::byte*>(output.mutable_data_ptr());
  problem.query_stride = problem.key_stride = problem.value_stride = stride;
  problem.output_stride = hidden;
  problem.cu_seqlens_q = problem.cu_seqlens_k = in.packing.cu_seqlens;
  if (absl::Status status = in.attention(spec, problem, in.control); !status.ok()) return status;
  return output;
}

}  // namespace castor::encoder
