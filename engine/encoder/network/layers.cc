#include "engine/encoder/network/layers.h"

#include <ATen/ops/index_select.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/encoder/directory/adapters.h"

namespace castor::encoder {

int64_t RowsOfAStep(const at::Tensor& x, int64_t weights) {
  if (!x.device().is_cpu()) return x.size(0);
  constexpr int64_t kMultiplications = 1'500'000'000;
  return std::clamp<int64_t>(kMultiplications / weights / 64 * 64, 64, 16384);
}

namespace {

// The adapters of matrices that are stacked along their rows. `some`: of these outputs.
std::vector<Adapter> TakeAdapters(WeightReader& weights, std::span<const std::string> names,
                                  std::span<const int64_t> out, int64_t in, Columns some = {}) {
  std::vector<Adapter> taken;
  if (weights.adapters() == nullptr) return taken;
  for (auto& [a, b] : weights.adapters()->Take(names, out, in)) {
    if (b.defined() && some.count > 0) b = b.narrow(0, some.first, some.count);
    taken.push_back({.a = {std::move(a), {}}, .b = {std::move(b), {}}});
    const Linear& narrow = taken.back().a;  // its panels are mostly padding
    weights.CountCopies((narrow.column_grain() - narrow.out() % narrow.column_grain()) %
                        narrow.column_grain() * narrow.in());
  }
  return taken;
}

}  // namespace

Linear TakeLinear(WeightReader& weights, const std::string& name, int64_t out, int64_t in,
                  bool bias) {
  at::Tensor weight = weights.Take(name + ".weight", {out, in});
  if (weights.int8()) weights.CountInt8(out * in);
  Linear linear(std::move(weight), bias ? weights.Take(name + ".bias", {out}) : at::Tensor(),
                weights.int8());
  linear.set_adapters(TakeAdapters(weights, {&name, 1}, {&out, 1}, in));
  return linear;
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
  Linear linear(std::move(weight),
                bias ? weights.TakeStacked(ending(".bias"), out, 0) : at::Tensor(), weights.int8());
  linear.set_adapters(TakeAdapters(weights, names, out, in));
  return linear;
}

std::array<Linear, 2> TakeLinearHalves(WeightReader& weights, const std::string& name, int64_t out,
                                       int64_t in, bool bias) {
  const at::Tensor weight = weights.Take(name + ".weight", {2 * out, in});
  const at::Tensor biases = bias ? weights.Take(name + ".bias", {2 * out}) : at::Tensor();
  if (!weights.status().ok()) return {};
  if (weights.int8()) weights.CountInt8(2 * out * in);
  const auto half = [&](int64_t i) {
    Linear linear(weight.narrow(0, i * out, out),
                  bias ? biases.narrow(0, i * out, out) : at::Tensor(), weights.int8());
    const int64_t both = 2 * out;
    linear.set_adapters(TakeAdapters(weights, {&name, 1}, {&both, 1}, in, {i * out, out}));
    return linear;
  };
  return {half(0), half(1)};
}

std::vector<TableAdapter> TakeTableAdapters(WeightReader& weights, const std::string& name,
                                            int64_t rows, int64_t hidden) {
  std::vector<TableAdapter> taken;
  if (weights.adapters() == nullptr) return taken;
  for (auto& [a, b] : weights.adapters()->Take({&name, 1}, {&hidden, 1}, rows, /*table=*/true)) {
    taken.push_back({.rows = a.defined() ? a.t().contiguous() : a, .b = {std::move(b), {}}});
  }
  return taken;
}

void AddTableRows(const std::vector<TableAdapter>& adapters, const at::Tensor& ids,
                  const TaskRows& tasks, const at::Tensor& x) {
  ForAdapters(tasks, x.size(0), adapters, [&](int64_t first, int64_t count, const auto* its) {
    if (its == nullptr) return;
    its->b.AddTo(at::index_select(its->rows, 0, ids.narrow(0, first, count)),
                 x.narrow(0, first, count));
  });
}

LayerNorm TakeNorm(WeightReader& weights, const std::string& name, int64_t hidden, double epsilon,
                   bool bias, NormKind kind) {
  const bool biased = bias && kind == NormKind::kLayerNorm;
  return {weights.Take(name + ".weight", {hidden}),
          biased ? weights.Take(name + ".bias", {hidden}) : at::Tensor(), epsilon, kind};
}

at::Tensor TokenRows(const at::Tensor& table, const BodyInputs& in,
                     const std::vector<TableAdapter>& adapters) {
  at::Tensor rows = at::index_select(table, 0, in.ids);
  AddTableRows(adapters, in.ids, {in.packing.tasks}, rows);
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
