#include "engine/encoder/layers/disentangled.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace castor::encoder {
namespace {

// Elements of a block of scores, or of products with embeddings: about 20 ms of work for one core.
constexpr int64_t kBlockElements = int64_t{1} << 20;

// Some of a sequence's scores.
struct ScoreBlock {
  int64_t heads;
  int64_t rows;
};
ScoreBlock BlockOf(int64_t heads, int64_t tokens, int64_t widest) {
  const int64_t row = std::max(tokens, widest);
  const int64_t some = std::clamp<int64_t>(kBlockElements / (tokens * row), 1, heads);
  return {.heads = some, .rows = std::clamp<int64_t>(kBlockElements / (some * row), 1, tokens)};
}

// [2 * span, heads * head_dim] by heads.
at::Tensor ByHeads(const at::Tensor& rows, int64_t heads) {
  return rows.to(at::kFloat).view({rows.size(0), heads, -1}).transpose(0, 1).contiguous();
}

}  // namespace

// As transformers rounds it.
at::Tensor BucketsOfDistances(const DisentangledConfig& config) {
  const int64_t most = config.most_tokens;
  at::Tensor distances = at::arange(1 - most, most, at::TensorOptions().dtype(at::kLong));
  if (config.buckets > 0) {
    const auto mid = static_cast<double>(config.buckets / 2);
    const at::Tensor lengths = at::abs(distances).to(at::kFloat);
    const at::Tensor whole =
        at::log(at::full({}, (static_cast<double>(config.farthest) - 1) / mid, lengths.options()));
    const at::Tensor logs =
        at::ceil(at::log(at::clamp(lengths, mid - 1).div(mid)).div(whole).mul(mid - 1)).add(mid);
    distances = at::where(lengths.le(mid), distances.to(at::kFloat),
                          logs.mul(at::sign(distances).to(at::kFloat)))
                    .to(at::kLong);
  }
  return at::clamp(distances.add(config.span()), 0, 2 * config.span() - 1);
}

absl::StatusOr<at::Tensor> Disentangled::operator()(const Qkv& qkv, const RelativeRows& layer,
                                                    const at::Tensor& x,
                                                    const BodyInputs& in) const {
  const int64_t heads = qkv.heads, head_dim = qkv.head_dim();
  const absl::StatusOr<at::Tensor> projected =
      qkv(x, nullptr, nullptr, {.first = 0, .count = heads}, in.control);
  if (!projected.ok()) return projected;
  const at::Tensor parts = projected->view({x.size(0), 3, heads, head_dim});
  at::Tensor output = at::empty({x.size(0), heads, head_dim}, x.options());
  const std::vector<int32_t>& offsets = in.packing.cu_seqlens;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t begin = offsets[s], tokens = offsets[s + 1] - begin;
    const ScoreBlock block = BlockOf(heads, tokens, std::max(2 * config.span(), head_dim));
    for (int64_t h = 0; h < heads; h += block.heads) {
      const int64_t some = std::min(block.heads, heads - h);
      const auto part = [&](int64_t which) {  // [some, tokens, head_dim]
        return parts.narrow(0, begin, tokens)
            .select(1, which)
            .narrow(1, h, some)
            .transpose(0, 1)
            .to(at::kFloat);
      };
      const auto of_heads = [&](const at::Tensor& rows) {  // [some, head_dim, 2 * span]
        return rows.narrow(0, h, some).transpose(1, 2);
      };
      const at::Tensor query = part(0).mul(config.scale);
      // The last key comes first, so that buckets of rows and keys are a view of the table.
      const at::Tensor key = at::flip(part(1), {1});
      const at::Tensor value = at::flip(part(2), {1});
      at::Tensor keys_meet;  // [some, tokens, 2 * span]
      if (layer.queries.defined()) keys_meet = at::bmm(key, of_heads(layer.queries));
      for (int64_t first = 0; first < tokens; first += block.rows) {
        const int64_t rows = std::min(block.rows, tokens - first);
        const at::Tensor some_rows = query.narrow(1, first, rows);
        const at::Tensor places =  // [rows, tokens]
            buckets.as_strided({rows, tokens}, {1, 1}, first - tokens + config.most_tokens);
        at::Tensor scores = at::bmm(some_rows, key.transpose(1, 2));
        if (layer.keys.defined()) {
          scores.add_(at::gather(at::bmm(some_rows, of_heads(layer.keys)), 2,
                                 places.unsqueeze(0).expand({some, rows, tokens})));
        }
        if (keys_meet.defined()) {
          scores.add_(at::gather(keys_meet, 2, places.t().unsqueeze(0).expand({some, tokens, rows}))
                          .transpose(1, 2));
        }
        output.narrow(0, begin + first, rows)
            .narrow(1, h, some)
            .copy_(at::bmm(at::softmax(scores, 2), value).transpose(0, 1));
        if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
      }
    }
  }
  return output.view({x.size(0), heads * head_dim});
}

attention::Count Disentangled::batch_bytes(int64_t head_dim) const {
  using attention::Count;
  // Of one head at least. Scores, what they are softened to and what is gathered; products with
  // embeddings; queries, keys and values, before and after they are turned.
  const Count block = std::max(Count(kBlockElements),
                               Count(config.most_tokens) * std::max(2 * config.span(), head_dim));
  return 12 * block * static_cast<int64_t>(sizeof(float));
}

Disentangled TakeDisentangled(WeightReader& weights, const DisentangledConfig& config,
                              const std::string& layers, const std::vector<const Qkv*>& qkv) {
  Disentangled taken{.config = config, .buckets = {}, .layers = {}};
  const int64_t hidden = qkv.front()->linear.in(), heads = qkv.front()->heads;
  const int64_t width = heads * qkv.front()->head_dim();
  at::Tensor rows = weights.Take("encoder.rel_embeddings.weight", {2 * config.span(), hidden});
  if (config.normed) {
    const LayerNorm norm = TakeNorm(weights, "encoder.LayerNorm", hidden, config.epsilon);
    if (weights.status().ok()) rows = norm(rows);
  }
  for (size_t i = 0; i < qkv.size() && weights.status().ok(); ++i) {
    const std::string at = layers + "." + std::to_string(i) + ".attention.self.";
    RelativeRows layer;
    const auto project = [&](bool wanted, const char* name, int64_t part) -> at::Tensor {
      if (!wanted) return {};
      if (config.shared) return ByHeads(qkv[i]->linear(rows).narrow(1, part * width, width), heads);
      const Linear own = TakeLinear(weights, at + name, width, hidden);
      return weights.status().ok() ? ByHeads(own(rows), heads) : at::Tensor();
    };
    layer.keys = project(config.of_queries, "pos_key_proj", 1);
    layer.queries = project(config.of_keys, "pos_query_proj", 0);
    if (layer.queries.defined()) layer.queries.mul_(config.scale);
    for (const at::Tensor& made : {layer.keys, layer.queries}) {
      if (!made.defined()) continue;
      weights.CountCopies(made.numel() * static_cast<int64_t>(sizeof(float)) /
                          static_cast<int64_t>(rows.element_size()));
    }
    taken.layers.push_back(std::move(layer));
  }
  taken.buckets = BucketsOfDistances(config).to(weights.device());
  return taken;
}

}  // namespace castor::encoder
