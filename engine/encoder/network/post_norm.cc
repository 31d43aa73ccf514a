#include "engine/encoder/network/post_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/encoder/layers/self_attention.h"

namespace castor::encoder {
namespace {

struct Layer {
  Qkv qkv;
  Linear attention_output;  // [hidden, hidden]
  LayerNorm attention_norm;
  std::optional<LayerNorm> second_attention_norm;
  FeedForward mlp;
  LayerNorm output_norm;
};

struct PostNormWeights {
  at::Tensor bias;  // as in PostNormConfig
  at::Tensor slopes;
  at::Tensor words;      // [words, hidden], or as wide as embeddings are; likewise:
  at::Tensor positions;  // [positions, hidden], or undefined
  at::Tensor types;      // [types, hidden], or undefined
  LayerNorm norm;
  std::optional<Linear> projection;
  std::optional<Rope> rope;
  std::optional<Disentangled> disentangled;
  std::vector<Layer> layers;
};

class PostNorm final : public Body {
 public:
  PostNorm(BodyInfo info, PostNormWeights weights)
      : info_(std::move(info)), weights_(std::move(weights)) {
    if (weights_.bias.defined()) {
      info_.bias.table = weights_.bias.const_data_ptr<float>();
      info_.bias.reach = weights_.bias.size(1) / 2;
    }
    if (weights_.slopes.defined()) info_.bias.slopes = weights_.slopes.const_data_ptr<float>();
  }

  const BodyInfo& info() const override { return info_; }
  BodyActivations activations() const override;
  absl::StatusOr<at::Tensor> Forward(const BodyInputs& in) const override;

 private:
  absl::StatusOr<at::Tensor> Embed(const BodyInputs& in) const;
  void Finish(const Layer& layer, const at::Tensor& mixed, const at::Tensor& x) const;

  BodyInfo info_;  // constant once built
  const PostNormWeights weights_;
};

// How many rows go through a layer's row-wise half together. On a CPU the wide rows in between
// should stay in the cache, and in memory that the allocator reuses rather than maps anew each
// time.
constexpr int64_t kCpuRows = 1024;
int64_t RowsAtOnce(const Layer& layer, const at::Tensor& x) {
  if (!x.device().is_cpu()) return x.size(0);
  return std::min(kCpuRows,
                  RowsOfAStep(x, layer.attention_output.elements() + layer.mlp.elements()));
}

absl::StatusOr<at::Tensor> PostNorm::Forward(const BodyInputs& in) const {
  absl::StatusOr<at::Tensor> x = Embed(in);
  if (!x.ok()) return x;
  std::optional<Rotation> rotation;
  if (weights_.rope.has_value()) {
    absl::StatusOr<Rotation> made =
        weights_.rope->Of(in.positions, in.packing.cu_seqlens, in.control);
    if (!made.ok()) return made.status();
    rotation = *std::move(made);
  }
  const attention::Spec attention = GlobalAttention(info_, TypeOf(weights_.words), in.batch.kernel);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const Layer& layer = weights_.layers[i];
    const Projection projection{.qkv = layer.qkv,
                                .rotation = rotation.has_value() ? &*rotation : nullptr};
    absl::StatusOr<at::Tensor> mixed =
        weights_.disentangled.has_value()
            ? (*weights_.disentangled)(layer.qkv, weights_.disentangled->layers[i], *x, in)
            : SelfAttention(projection, *x, attention, in);
    if (!mixed.ok()) return mixed.status();
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
    const int64_t step = RowsAtOnce(layer, *x);
    // The rest of the layer treats every row independently.
    for (int64_t first = 0; first < x->size(0); first += step) {
      const int64_t count = std::min(step, x->size(0) - first);
      Finish(layer, mixed->narrow(0, first, count), x->narrow(0, first, count));
      if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
    }
  }
  return x;
}

absl::StatusOr<at::Tensor> PostNorm::Embed(const BodyInputs& in) const {
  at::Tensor x = TokenRows(weights_.words, in);
  at::Tensor projected;
  if (weights_.projection.has_value())
    projected = at::empty({x.size(0), info_.hidden}, x.options());
  const int64_t step = x.device().is_cpu() ? kCpuRows : x.size(0);
  for (int64_t first = 0; first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    at::Tensor rows = x.narrow(0, first, count);
    if (weights_.types.defined()) {
      rows.add_(at::index_select(weights_.types, 0, in.type_ids.narrow(0, first, count)));
    }
    if (weights_.positions.defined()) {
      rows.add_(at::index_select(weights_.positions, 0, in.positions.narrow(0, first, count)));
    }
    rows.copy_(weights_.norm(rows));
    if (projected.defined()) projected.narrow(0, first, count).copy_((*weights_.projection)(rows));
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
  }
  return projected.defined() ? projected : x;
}

// The rest of a layer after attention: `mixed` is attention's output, `x` its input, which becomes
// the layer's output.
void PostNorm::Finish(const Layer& layer, const at::Tensor& mixed, const at::Tensor& x) const {
  const at::Tensor y = layer.attention_norm.AddNorm(layer.attention_output(mixed), x);
  if (layer.second_attention_norm.has_value()) layer.second_attention_norm->AddNorm(y, x, y);
  layer.output_norm.AddNorm(layer.mlp(y), y, x);
}

BodyActivations PostNorm::activations() const {
  using kernels::Count;
  const Layer& layer = weights_.layers.front();
  const auto element = static_cast<int64_t>(weights_.words.element_size());
  const Count row = Count(info_.hidden) * element;
  const bool rotated = weights_.rope.has_value();
  const Count rotation = rotated ? RotationBytes(info_.head_size()) : Count(0);
  // At most at a time in Finish: what attention returned, `y`, and what the MLP takes, its result
  // included, and that once more as it is normalised.
  const Count wides = row + layer.mlp.row_bytes(element);
  const Count other_half = 2 * row + wides;
  const Count step = layer.qkv.step_bytes(weights_.words, /*before=*/false, rotated);
  BodyActivations bytes{.rows = {.token = row}};
  const Count terms = weights_.disentangled.has_value()
                          ? weights_.disentangled->batch_bytes(info_.head_size())
                          : Count(0);
  if (!weights_.words.device().is_cpu()) {
    const Count attention_half = 4 * row;  // queries, keys, values and what attention returns
    bytes.layers.token = rotation + std::max(attention_half + step, other_half);
    bytes.batch = terms;
    return bytes;
  }
  // What attention returns is there in both halves; the other one goes in steps.
  bytes.layers.token = rotation + row;
  bytes.qkv = QkvBytes(layer.qkv, weights_.words, /*together=*/weights_.disentangled.has_value());
  bytes.batch = std::max({kCpuRows * (row + wides), step, terms});
  if (weights_.projection.has_value()) {
    // Before the layers.
    const Count embedding = Count(info_.embedding_size) * element;
    bytes.layers.token = std::max(bytes.layers.token, embedding);
    bytes.batch = std::max(bytes.batch, kCpuRows * (2 * embedding + row +
                                                    weights_.projection->scratch_bytes_of_row()));
  }
  return bytes;
}

std::string Join(const std::string& first, std::string_view second) {
  return first + std::string(second);
}

// Takes the weights by the family's names.
class WeightTaker {
 public:
  WeightTaker(const PostNormConfig& config, const PostNormNames& names, WeightReader& weights)
      : config_(config),
        names_(names),
        weights_(weights),
        hidden_(config.info.hidden),
        embedding_(config.info.projected() ? config.info.embedding_size : hidden_) {}

  PostNormWeights Take() {
    PostNormWeights taken;
    taken.words = TakeTable(names_.words, config_.words);
    if (config_.positions > 0) taken.positions = TakeTable(names_.positions, config_.positions);
    if (!names_.types.empty() && config_.types > 0)
      taken.types = TakeTable(names_.types, config_.types);
    taken.norm = TakeNorm(weights_, std::string(names_.norm), embedding_, config_.epsilon);
    if (config_.info.projected()) {
      taken.projection = TakeLinear(weights_, std::string(names_.projection), hidden_, embedding_);
    }
    for (int64_t i = 0; i < config_.info.layers && weights_.status().ok(); ++i) {
      taken.layers.push_back(TakeLayer(std::string(names_.layers) + "." + std::to_string(i) + "."));
    }
    return taken;
  }

 private:
  at::Tensor TakeTable(std::string_view name, int64_t rows) {
    return weights_.Take(std::string(name) + ".weight", {rows, embedding_});
  }

  // `at` is the prefix of one layer's names.
  Layer TakeLayer(const std::string& at) {
    const QkvConfig qkv{.hidden = hidden_,
                        .heads = config_.info.heads,
                        .head_dim = config_.info.head_size(),
                        .bias = config_.qkv_bias,
                        .norm_epsilon = config_.epsilon};
    Layer layer{
        .qkv = TakeQkv(weights_, at, names_.qkv, qkv),
        .attention_output = TakeLinear(weights_, Join(at, names_.attention_output), hidden_,
                                       hidden_, config_.attention_output_bias),
        .attention_norm = Norm(Join(at, names_.attention_norm)),
        .second_attention_norm = std::nullopt,
        .mlp = TakeFeedForward(weights_, at, names_.mlp, config_.mlp, hidden_),
        .output_norm = Norm(Join(at, names_.output_norm)),
    };
    if (!names_.second_attention_norm.empty()) {
      layer.second_attention_norm = Norm(Join(at, names_.second_attention_norm));
    }
    return layer;
  }

  LayerNorm Norm(const std::string& name) {
    return TakeNorm(weights_, name, hidden_, config_.epsilon, /*bias=*/true, config_.layer_norm);
  }

  const PostNormConfig& config_;
  const PostNormNames& names_;
  WeightReader& weights_;
  const int64_t hidden_;
  const int64_t embedding_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Body>> BuildPostNorm(const PostNormConfig& config,
                                                    const PostNormNames& names,
                                                    WeightReader& weights) {
  weights.ChoosePrefix(std::string(names.words) + ".weight", names.prefixes);
  PostNormWeights taken = WeightTaker(config, names, weights).Take();
  if (!weights.status().ok()) return weights.status();
  taken.bias = config.bias;
  taken.slopes = config.slopes;
  if (config.disentangled.has_value()) {
    std::vector<const Qkv*> qkv;
    for (const Layer& layer : taken.layers) qkv.push_back(&layer.qkv);
    taken.disentangled =
        TakeDisentangled(weights, *config.disentangled, std::string(names.layers), qkv);
    if (!weights.status().ok()) return weights.status();
  }
  if (config.rope.has_value()) {
    taken.rope = Rope(*config.rope, config.info.head_size(), taken.words.device());
  }
  return std::make_unique<PostNorm>(config.info, std::move(taken));
}

}  // namespace castor::encoder
