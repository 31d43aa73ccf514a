#include "engine/encoder/layers/qkv.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace castor::encoder {

int64_t Qkv::head_grain() const {
  for (const std::optional<LayerNorm>* norm : {&query_norm, &key_norm}) {
    if (norm->has_value() && (*norm)->size() != head_dim()) return heads;
  }
  const int64_t columns = linear.column_grain();
  // The columns where keys begin, and the number of their columns, must be multiples of a panel's.
  if (heads * head_dim() % columns != 0 || kv_heads * head_dim() % columns != 0) return heads;
  return std::min(heads, heads / kv_heads * (columns / std::gcd(columns, head_dim())));
}

absl::StatusOr<at::Tensor> Qkv::operator()(const at::Tensor& x, const LayerNorm* before,
                                           const Rotation* rotation, HeadRange range,
                                           const TaskRows& tasks, RunControl& control) const {
  const int64_t group = heads / kv_heads;
  const int64_t all = heads * head_dim();
  const int64_t all_keys = kv_heads * head_dim();
  const int64_t width = range.count * head_dim();
  const int64_t kv_width = width / group;
  const int64_t all_widths = width + 2 * kv_width;
  const auto project = [&](const at::Tensor& rows, const TaskRows& their) {
    if (range.count == heads) return linear(rows, std::nullopt, their);
    const int64_t first = range.first * head_dim();
    const int64_t kv_first = all + first / group;
    return linear.Part(rows,
                       std::array{Columns{first, width}, Columns{kv_first, kv_width},
                                  Columns{kv_first + all_keys, kv_width}},
                       their);
  };
  const auto of_rows = [&](int64_t first, int64_t count) {
    const at::Tensor rows = x.narrow(0, first, count);
    at::Tensor qkv = project(before != nullptr ? (*before)(rows) : rows, tasks.From(first));
    const auto normalize = [&](const std::optional<LayerNorm>& norm, const at::Tensor& columns) {
      if (!norm.has_value()) return;
      columns.copy_((*norm)(columns.reshape({-1, norm->size()})).view(columns.sizes()));
    };
    normalize(query_norm, qkv.narrow(1, 0, width));
    normalize(key_norm, qkv.narrow(1, width, kv_width));
    if (rotation != nullptr) {
      Rotate(rotation->Rows(first, count), range.count + range.count / group, qkv);
    }
    return qkv;
  };
  const int64_t step = RowsOfAStep(x, linear.elements());
  if (x.size(0) <= step) return of_rows(0, x.size(0));
  at::Tensor qkv = at::empty({x.size(0), all_widths}, x.options());
  absl::Status done = InSteps(x.size(0), step, control, [&](int64_t first, int64_t count) {
    qkv.narrow(0, first, count).copy_(of_rows(first, count));
  });
  if (!done.ok()) return done;
  return qkv;
}

// While rows are projected, a step's rows exist twice. The result of attention, whose memory is
// counted already, does not exist yet.
kernels::Count Qkv::step_bytes(const at::Tensor& like, bool before, bool rotated) const {
  using kernels::Count;
  const bool cpu = like.device().is_cpu();
  const auto element = static_cast<int64_t>(like.element_size());
  const int64_t queries = heads * head_dim();
  const int64_t keys = kv_heads * head_dim();
  const int64_t step = cpu ? RowsOfAStep(like, linear.elements()) : 1;
  const Count inputs = before ? 2 * Count(linear.in()) : Count(0);
  const Count results = Count(query_norm.has_value() ? 2 : 0) * queries + 2 * Count(keys);
  const Count turning = rotated ? RotatingBytes(queries + keys, step, cpu) : Count(0);
  return step * ((inputs + results) * element + linear.scratch_bytes_of_row()) + turning;
}

Qkv TakeQkv(WeightReader& weights, const std::string& at, const QkvNames& names,
            const QkvConfig& config) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const auto norm = [&](std::string_view part, int64_t heads) -> std::optional<LayerNorm> {
    if (part.empty()) return std::nullopt;
    const int64_t size = config.norm_heads ? config.head_dim : heads * config.head_dim;
    return TakeNorm(weights, name(part), size, config.norm_epsilon, /*bias=*/true, config.norm);
  };
  Qkv taken{.heads = config.heads,
            .kv_heads = config.key_value_heads > 0 ? config.key_value_heads : config.heads,
            .linear = {},
            .query_norm = std::nullopt,
            .key_norm = std::nullopt};
  if (names.key.empty()) {
    taken.linear =
        TakeLinear(weights, name(names.query), 3 * config.width(), config.hidden, config.bias);
  } else {
    const int64_t keys = taken.kv_heads * config.head_dim;
    taken.linear = TakeStackedLinear(
        weights, std::array{name(names.query), name(names.key), name(names.value)},
        std::array{config.width(), keys, keys}, config.hidden, config.bias);
  }
  taken.query_norm = norm(names.query_norm, taken.heads);
  taken.key_norm = norm(names.key_norm, taken.kv_heads);
  return taken;
}

}  // namespace castor::encoder
