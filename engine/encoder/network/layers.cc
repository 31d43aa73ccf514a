#include "engine/encoder/network/layers.h"

#include <ATen/ops/index_select.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace castor::encoder {

int64_t RowsOfAStep(const at::Tensor& x, int64_t weights) {
  if (!x.device().is_cpu()) return x.size(0);
  constexpr int64_t kMultiplications = 1'500'000'000;
  return std::clamp<int64_t>(kMultiplications / weights / 64 * 64, 64, 16384);
}

Linear TakeLinear(WeightReader& weights, const std::string& name, int64_t out, int64_t in,
                  bool bias) {
  at::Tensor weight = weights.Take(name + ".weight", {out, in});
  if (weights.int8()) weights.CountInt8(out * in);
  return {std::move(weight), bias ? weights.Take(name + ".bias", {out}) : at::Tensor(),
          weights.int8()};
}

Linear TakeStackedLinear(WeightReader& weights, std::span<const std::string> names,
                         std::span<const int64_t> out, int64_t in, bool bias) {
  const auto ending = [&](const char* end) {
    std::vector<std::string> full;
    for (const std::string& name : names) full.push_back(name + end);
    return full;
  };
  at::Tensor weight = weights.TakeStacked(ending(".weight"), out, in);
  if (weights.int8()) weights.CountInt8(std::accumulate(out.begin(), out.end(), int64_t{0}) * in);
  return {std::move(weight), bias ? weights.TakeStacked(ending(".bias"), out, 0) : at::Tensor(),
          weights.int8()};
}

std::array<Linear, 2> TakeLinearHalves(WeightReader& weights, const std::string& name, int64_t out,
                                       int64_t in, bool bias) {
  const at::Tensor weight = weights.Take(name + ".weight", {2 * out, in});
  const at::Tensor biases = bias ? weights.Take(name + ".bias", {2 * out}) : at::Tensor();
  if (!weights.status().ok()) return {};
  if (weights.int8()) weights.CountInt8(2 * out * in);
  const auto half = [&](int64_t i) -> Linear {
    return {weight.narrow(0, i * out, out), bias ? biases.narrow(0, i * out, out) : at::Tensor(),
            weights.int8()};
  };
  return {half(0), half(1)};
}

LayerNorm TakeNorm(WeightReader& weights, const std::string& name, int64_t hidden, double epsilon,
                   bool bias, NormKind kind) {
  const bool biased = bias && kind == NormKind::kLayerNorm;
  return {weights.Take(name + ".weight", {hidden}),
          biased ? weights.Take(name + ".bias", {hidden}) : at::Tensor(), epsilon, kind};
}

at::Tensor TokenRows(const at::Tensor& table, const BodyInputs& in) {
  at::Tensor rows = at::index_select(table, 0, in.ids);
  for (size_t i = 0; i < in.inputs.embeddings.size(); ++i) {
    const at::Tensor& given = in.inputs.embeddings[i];
    if (given.defined()) rows.narrow(0, in.packing.first_token[i], given.size(0)).copy_(given);
  }
  return rows;
}

DType TypeOf(const at::Tensor& rows) {
  return rows.scalar_type() == at::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
}

}  // namespace castor::encoder
