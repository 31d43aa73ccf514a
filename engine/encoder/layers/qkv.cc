#include "engine/encoder/layers/qkv.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace castor::encoder {
namespace {

// The rows of a matrix, or of a bias, once for each head that reads them.
at::Tensor ForEachHead(WeightReader& weights, const std::string& name, const QkvConfig& config,
                       bool matrix) {
  const int64_t head_dim = config.head_dim;
  const int64_t stored = config.key_value_heads * head_dim;
  const int64_t columns = matrix ? config.hidden : 1;
  const at::Tensor taken =
      matrix ? weights.Take(name, {stored, columns}) : weights.Take(name, {stored});
  if (!taken.defined()) return {};
  weights.CountCopies((config.width() - stored) * columns);
  const at::Tensor heads = taken.view({config.key_value_heads, 1, head_dim * columns})
                               .expand({config.key_value_heads,
                                        config.heads / config.key_value_heads, head_dim * columns})
                               .contiguous();
  return matrix ? heads.view({config.width(), columns}) : heads.view({config.width()});
}

Linear TakeSharedQkv(WeightReader& weights, const std::array<std::string, 3>& names,
                     const QkvConfig& config) {
  const auto stacked = [&](const char* end, bool matrix) -> at::Tensor {
    const at::Tensor query = matrix ? weights.Take(names[0] + end, {config.width(), config.hidden})
                                    : weights.Take(names[0] + end, {config.width()});
    const at::Tensor key = ForEachHead(weights, names[1] + end, config, matrix);
    const at::Tensor value = ForEachHead(weights, names[2] + end, config, matrix);
    return weights.status().ok() ? at::cat({query, key, value}, 0) : at::Tensor();
  };
  at::Tensor weight = stacked(".weight", true);
  at::Tensor bias = config.bias ? stacked(".bias", false) : at::Tensor();
  if (weights.int8()) weights.CountInt8(3 * config.width() * config.hidden);
  return {std::move(weight), std::move(bias), weights.int8()};
}

}  // namespace

int64_t Qkv::head_grain() const {
  for (const std::optional<LayerNorm>* norm : {&query_norm, &key_norm}) {
    if (norm->has_value() && (*norm)->size() != head_dim()) return heads;
  }
  const int64_t columns = linear.column_grain();
  // Keys and values begin at a multiple of all heads' elements.
  if (heads * head_dim() % columns != 0) return heads;
  return std::min(heads, columns / std::gcd(columns, head_dim()));
}

absl::StatusOr<at::Tensor> Qkv::operator()(const at::Tensor& x, const LayerNorm* before,
                                           const Rotation* rotation, HeadRange range,
                                           RunControl& control) const {
  const int64_t all = heads * head_dim();
  const int64_t width = range.count * head_dim();
  const auto project = [&](const at::Tensor& rows) {
    if (range.count == heads) return linear(rows);
    const int64_t first = range.first * head_dim();
    return linear.Part(rows, std::array{Columns{first, width}, Columns{all + first, width},
                                        Columns{2 * all + first, width}});
  };
  const auto of_rows = [&](int64_t first, int64_t count) {
    const at::Tensor rows = x.narrow(0, first, count);
    at::Tensor qkv = project(before != nullptr ? (*before)(rows) : rows);
    for (const auto& [norm, part] : {std::pair{&query_norm, 0}, std::pair{&key_norm, 1}}) {
      if (!norm->has_value()) continue;
      const at::Tensor columns = qkv.narrow(1, part * width, width);
      const at::Tensor normed = (**norm)(columns.reshape({-1, (*norm)->size()}));
      columns.copy_(normed.view({count, width}));
    }
    if (rotation != nullptr) Rotate(rotation->Rows(first, count), range.count, qkv);
    return qkv;
  };
  const int64_t step = RowsOfAStep(x, linear.elements());
  if (x.size(0) <= step) return of_rows(0, x.size(0));
  at::Tensor qkv = at::empty({x.size(0), 3 * width}, x.options());
  for (int64_t first = 0; first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    qkv.narrow(0, first, count).copy_(of_rows(first, count));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return qkv;
}

// While rows are projected in steps, a step's are there twice, but no result of attention yet,
// which has a row's place already.
attention::Count Qkv::step_bytes(const at::Tensor& like, bool before, bool rotated) const {
  using attention::Count;
  const bool cpu = like.device().is_cpu();
  const auto element = static_cast<int64_t>(like.element_size());
  const Count width = Count(linear.out() / 3) * element;
  const int64_t step = cpu ? RowsOfAStep(like, linear.elements()) : 1;
  const Count inputs = before ? 2 * Count(linear.in()) * element : Count(0);
  const Count results = (query_norm.has_value() ? 4 : 2) * width;
  const Count turning = rotated ? RotatingBytes(linear.out() / 3, step, cpu) : Count(0);
  return step * (inputs + results + linear.scratch_bytes_of_row()) + turning;
}

Qkv TakeQkv(WeightReader& weights, const std::string& at, const QkvNames& names,
            const QkvConfig& config) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const auto norm = [&](std::string_view part) -> std::optional<LayerNorm> {
    if (part.empty()) return std::nullopt;
    const int64_t size = config.norm_heads ? config.head_dim : config.width();
    return TakeNorm(weights, name(part), size, config.norm_epsilon, /*bias=*/true, config.norm);
  };
  Qkv taken{
      .heads = config.heads, .linear = {}, .query_norm = std::nullopt, .key_norm = std::nullopt};
  if (names.key.empty()) {
    taken.linear =
        TakeLinear(weights, name(names.query), 3 * config.width(), config.hidden, config.bias);
  } else {
    const std::array all = {name(names.query), name(names.key), name(names.value)};
    const bool shared = config.key_value_heads > 0 && config.key_value_heads < config.heads;
    taken.linear =
        shared ? TakeSharedQkv(weights, all, config)
               : TakeStackedLinear(weights, all, config.width(), config.hidden, config.bias);
  }
  taken.query_norm = norm(names.query_norm);
  taken.key_norm = norm(names.key_norm);
  return taken;
}

}  // namespace castor::encoder
