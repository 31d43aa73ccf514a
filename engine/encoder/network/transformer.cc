#include "engine/encoder/network/transformer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/encoder/directory/adapters.h"
#include "engine/encoder/layers/self_attention.h"
#include "engine/kernels/count.h"

namespace castor::encoder {
namespace {

// The inputs of a CAST layer in addition to queries, keys and values (attention/cast/cast.md):
// surrogate tokens, and a gate computed from each token's row.
struct Surrogates {
  at::Tensor tokens;  // [N_c, heads, head_dim], of the weights' type
  Linear gate;        // [1, hidden]; never in 8 bits, since it moves tokens between clusters

  // The gates of the rows of `x`, [tokens, hidden], after the norm `before`: float32 [tokens].
  // Works in steps of at most `step` rows, with a checkpoint after each.
  absl::StatusOr<at::Tensor> Gates(const at::Tensor& x, const LayerNorm& before, int64_t step,
                                   RunControl& control) const {
    at::Tensor gates = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    absl::Status done = InSteps(x.size(0), step, control, [&](int64_t first, int64_t count) {
      const at::Tensor rows = before(x.narrow(0, first, count));
      gates.narrow(0, first, count).copy_(gate(rows).view({count}));
    });
    if (!done.ok()) return done;
    return gates;
  }

  // Both, as kernels take them.
  attention::CastInputs Inputs(const at::Tensor& gates) const {
    attention::CastInputs inputs;
    inputs.surrogates = static_cast<const std::byte*>(tokens.const_data_ptr());
    inputs.gate = gates.const_data_ptr<float>();
    return inputs;
  }

  // The bytes that Gates takes per row of a step, without its result.
  kernels::Count row_bytes() const {
    const auto element = static_cast<int64_t>(tokens.element_size());
    return kernels::Count(gate.in() + 1) * element + gate.scratch_bytes_of_row();
  }
};

// Norms as in TransformerNames.
struct Layer {
  bool local = false;
  std::optional<LayerNorm> attention_norm;
  Qkv qkv;
  std::optional<Surrogates> surrogates;  // of a CAST layer
  Linear attention_output;               // [hidden, heads * head_dim]
  std::optional<LayerNorm> attention_output_norm;
  std::optional<LayerNorm> second_attention_norm;
  std::optional<LayerNorm> mlp_norm;
  FeedForward mlp;
  std::optional<LayerNorm> mlp_output_norm;
};

struct TransformerWeights {
  at::Tensor bias;  // as in TransformerConfig
  at::Tensor slopes;
  at::Tensor words;      // [words, hidden], or as wide as embeddings are; likewise:
  at::Tensor positions;  // [positions, hidden], or undefined
  at::Tensor types;      // [types, hidden], or undefined
  std::vector<TableAdapter> words_adapters;  // by task; empty: none; likewise:
  std::vector<TableAdapter> types_adapters;
  std::optional<LayerNorm> norm;
  std::optional<Linear> projection;
  std::optional<Rope> rope;
  std::optional<Rope> local_rope;
  std::optional<Disentangled> disentangled;
  std::optional<Convolution> convolution;
  std::vector<Layer> layers;
  std::optional<LayerNorm> final_norm;
};

class Transformer final : public Body {
 public:
  Transformer(BodyInfo info, bool pre_norm, TransformerWeights weights)
      : info_(std::move(info)), pre_norm_(pre_norm), weights_(std::move(weights)) {
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
  absl::StatusOr<at::Tensor> Attend(size_t index, const attention::Spec& spec, const at::Tensor& x,
                                    const Rotation* rotation, const BodyInputs& in) const;
  void Finish(const Layer& layer, const at::Tensor& mixed, const at::Tensor& x,
              const TaskRows& tasks) const;

  BodyInfo info_;  // constant once built
  const bool pre_norm_;
  const TransformerWeights weights_;
};

// The number of rows that go through a row-wise part together. On a CPU, the wide rows in between
// should stay in the cache, and in memory that the allocator reuses rather than maps anew each
// time.
constexpr int64_t kCpuRows = 1024;
int64_t RowsAtOnce(const at::Tensor& x) { return x.device().is_cpu() ? kCpuRows : x.size(0); }
int64_t RowsAtOnce(const Layer& layer, const at::Tensor& x) {
  return std::min(RowsAtOnce(x),
                  RowsOfAStep(x, layer.attention_output.elements() + layer.mlp.elements()));
}

absl::StatusOr<std::optional<Rotation>> MakeRotation(const std::optional<Rope>& rope,
                                                     int64_t layers, const BodyInputs& in) {
  if (!rope.has_value() || layers == 0) return std::nullopt;
  return rope->RotationOf(in.positions, in.packing.cu_seqlens, in.control);
}

absl::StatusOr<at::Tensor> Transformer::Forward(const BodyInputs& in) const {
  absl::StatusOr<at::Tensor> embedded = Embed(in);
  if (!embedded.ok()) return embedded;
  at::Tensor x = *std::move(embedded);
  const auto global_rotation = MakeRotation(weights_.rope, info_.layers - info_.local_layers, in);
  if (!global_rotation.ok()) return global_rotation.status();
  const auto local_rotation = MakeRotation(weights_.local_rope, info_.local_layers, in);
  if (!local_rotation.ok()) return local_rotation.status();
  const attention::Spec global = GlobalAttention(info_, TypeOf(x), in.batch.kernel);
  const attention::Spec local = LocalAttention(info_, TypeOf(x));
  at::Tensor convolved;  // the first layer's inputs
  if (weights_.convolution.has_value()) convolved = Convolution::Copy(x);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const Layer& layer = weights_.layers[i];
    const std::optional<Rotation>& rotation = layer.local ? *local_rotation : *global_rotation;
    absl::StatusOr<at::Tensor> mixed =
        Attend(i, layer.local ? local : global, x, rotation.has_value() ? &*rotation : nullptr, in);
    if (!mixed.ok()) return mixed.status();
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
    // The rest of the layer treats every row independently.
    absl::Status done =
        InSteps(x.size(0), RowsAtOnce(layer, x), in.control, [&](int64_t first, int64_t count) {
          Finish(layer, mixed->narrow(0, first, count), x.narrow(0, first, count),
                 TaskRows{in.packing.tasks, first});
        });
    if (done.ok() && convolved.defined()) {
      done = (*weights_.convolution)(std::exchange(convolved, {}), x, in);
    }
    if (!done.ok()) return done;
  }
  if (!weights_.final_norm.has_value()) return x;
  absl::Status done =
      InSteps(x.size(0), RowsAtOnce(x), in.control, [&](int64_t first, int64_t count) {
        const at::Tensor rows = x.narrow(0, first, count);
        rows.copy_((*weights_.final_norm)(rows));
      });
  if (!done.ok()) return done;
  return x;
}

absl::StatusOr<at::Tensor> Transformer::Embed(const BodyInputs& in) const {
  const at::Tensor x = TokenRows(weights_.words, in, weights_.words_adapters);
  at::Tensor projected;
  if (weights_.projection.has_value()) {
    projected = at::empty({x.size(0), info_.hidden}, x.options());
  }
  absl::Status done =
      InSteps(x.size(0), RowsAtOnce(x), in.control, [&](int64_t first, int64_t count) {
        const at::Tensor rows = x.narrow(0, first, count);
        const auto add = [&](const at::Tensor& table, const at::Tensor& indices) {
          if (!table.defined()) return;
          rows.add_(at::index_select(table, 0, indices.narrow(0, first, count)));
        };
        add(weights_.types, in.type_ids);
        AddTableRows(weights_.types_adapters, in.type_ids.narrow(0, first, count),
                     {in.packing.tasks, first}, rows);
        add(weights_.positions, in.positions);
        if (weights_.norm.has_value()) rows.copy_((*weights_.norm)(rows));
        if (projected.defined()) {
          projected.narrow(0, first, count).copy_((*weights_.projection)(rows));
        }
      });
  if (!done.ok()) return done;
  return projected.defined() ? projected : x;
}

// The result of a layer's attention over its input `x`.
absl::StatusOr<at::Tensor> Transformer::Attend(size_t index, const attention::Spec& spec,
                                               const at::Tensor& x, const Rotation* rotation,
                                               const BodyInputs& in) const {
  const Layer& layer = weights_.layers[index];
  if (weights_.disentangled.has_value()) {
    return (*weights_.disentangled)(layer.qkv, weights_.disentangled->layers[index], x, in);
  }
  const LayerNorm* const norm = layer.attention_norm.has_value() ? &*layer.attention_norm : nullptr;
  const Projection projection{.qkv = layer.qkv, .before = norm, .rotation = rotation};
  if (!layer.surrogates.has_value()) return SelfAttention(projection, x, spec, in);
  const absl::StatusOr<at::Tensor> gates =
      layer.surrogates->Gates(x, *norm, RowsAtOnce(x), in.control);
  if (!gates.ok()) return gates;
  return SelfAttention(projection, x, spec, in, layer.surrogates->Inputs(*gates));
}

// The rest of a layer after attention. `mixed`: attention's output. `x`: the layer's input, which
// becomes its output.
void Transformer::Finish(const Layer& layer, const at::Tensor& mixed, const at::Tensor& x,
                         const TaskRows& tasks) const {
  const auto attended = [&] { return layer.attention_output(mixed, std::nullopt, tasks); };
  if (!pre_norm_) {
    const at::Tensor y = layer.attention_output_norm->AddNorm(attended(), x);
    if (layer.second_attention_norm.has_value()) layer.second_attention_norm->AddNorm(y, x, y);
    layer.mlp_output_norm->AddNorm(layer.mlp(y, tasks), y, x);
    return;
  }
  const auto add = [&](const at::Tensor& output, const std::optional<LayerNorm>& norm) {
    x.add_(norm.has_value() ? (*norm)(output) : output);
  };
  add(attended(), layer.attention_output_norm);
  add(layer.mlp((*layer.mlp_norm)(x), tasks), layer.mlp_output_norm);
}

BodyActivations Transformer::activations() const {
  using kernels::Count;
  const Layer& layer = weights_.layers.front();
  const auto element = static_cast<int64_t>(weights_.words.element_size());
  const Count row = Count(info_.hidden) * element;
  const Count mixed = Count(info_.width()) * element;
  const bool rotated = weights_.rope.has_value();
  const Count rotations =
      rotated ? RotationBytes(info_.head_size()) * (info_.local_layers > 0 ? 2 : 1) : Count(0);
  const bool cast = layer.surrogates.has_value();
  const Count gate_step = cast ? layer.surrogates->row_bytes() : Count(0);
  const Count gates = cast ? int64_t{sizeof(float)} : 0;
  // In addition to `mixed`: the MLP's input and memory, its result included, and that result
  // normalised.
  Count mlp = 0;
  for (const Layer& each : weights_.layers) mlp = std::max(mlp, each.mlp.row_bytes(element));
  const Count other_half = (layer.mlp_output_norm.has_value() ? 2 : 1) * row + mlp;
  const Count step = layer.qkv.step_bytes(weights_.words, pre_norm_, rotated);
  const Count terms = weights_.disentangled.has_value()
                          ? weights_.disentangled->batch_bytes(info_.head_size())
                          : Count(0);
  BodyActivations bytes{.rows = {.token = row}};
  if (!weights_.words.device().is_cpu()) {
    // Queries, keys, values, and the result of attention.
    const Count attention_half = 4 * mixed + gates + std::max(step, gate_step);
    bytes.layers.token = rotations + std::max(attention_half, mixed + other_half);
    bytes.batch = terms;
    return bytes;
  }
  // The result of attention is kept for the other half, which works in steps.
  bytes.layers.token = rotations + mixed + gates;
  bytes.qkv = QkvBytes(layer.qkv, weights_.words,
                       /*together=*/cast || weights_.disentangled.has_value());
  bytes.batch = std::max({kCpuRows * other_half, step, kCpuRows * gate_step, terms});
  if (weights_.convolution.has_value()) {
    bytes.layers.token += weights_.convolution->token_bytes(element);
    bytes.batch = std::max(bytes.batch, weights_.convolution->batch_bytes(element));
  }
  if (weights_.projection.has_value()) {
    // Before the layers.
    const Count embedding = Count(info_.embedding_size) * element;
    bytes.layers.token = std::max(bytes.layers.token, embedding);
    bytes.batch = std::max(bytes.batch, kCpuRows * (2 * embedding + row +
                                                    weights_.projection->scratch_bytes_of_row()));
  }
  return bytes;
}

// Positions as sinusoids (Vaswani et al. 2017, arXiv 1706.03762, section 3.5): [positions, hidden],
// float32 on the CPU. Element 2 i of position p is the sine, element 2 i + 1 the cosine of
// p / 10000^(2 i / hidden).
at::Tensor Sinusoids(int64_t positions, int64_t hidden) {
  at::Tensor table = at::empty({positions, hidden}, at::kFloat);
  float* element = table.mutable_data_ptr<float>();
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t e = 0; e < hidden; ++e) {
      const double exponent = static_cast<double>(e / 2 * 2) / static_cast<double>(hidden);
      const double angle = static_cast<double>(p) / std::pow(10'000.0, exponent);
      *element++ = static_cast<float>(e % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return table;
}

// Takes the weights by the family's names.
class WeightTaker {
 public:
  WeightTaker(const TransformerConfig& config, const TransformerNames& names, WeightReader& weights)
      : config_(config),
        names_(names),
        weights_(weights),
        hidden_(config.info.hidden),
        embedding_(config.info.projected() ? config.info.embedding_size : hidden_) {}

  TransformerWeights Take() {
    TransformerWeights taken;
    taken.words = TakeTable(names_.words, config_.words);
    if (!config_.sinusoidal) taken.positions = TakeTable(names_.positions, config_.positions);
    taken.types = TakeTable(names_.types, config_.types);
    taken.words_adapters =
        TakeTableAdapters(weights_, std::string(names_.words), config_.words, embedding_);
    if (config_.types > 0) {
      taken.types_adapters =
          TakeTableAdapters(weights_, std::string(names_.types), config_.types, embedding_);
    }
    if (!names_.norm.empty()) {
      taken.norm = TakeNorm(weights_, std::string(names_.norm), embedding_, config_.epsilon,
                            config_.norm_bias);
    }
    if (config_.info.projected()) {
      taken.projection = TakeLinear(weights_, std::string(names_.projection), hidden_, embedding_);
    }
    for (int64_t i = 0; i < config_.info.layers && weights_.status().ok(); ++i) {
      taken.layers.push_back(TakeLayer(i));
    }
    taken.final_norm = Norm("", names_.final_norm);
    if (!weights_.status().ok()) return taken;
    if (config_.embedding_scale != 1) {
      // transformers scales in the weights' type, too.
      taken.words.mul_(at::full({}, config_.embedding_scale, taken.words.options()));
    }
    if (config_.sinusoidal) {
      taken.positions = Sinusoids(config_.positions, hidden_).to(taken.words.options());
      weights_.CountCopies(config_.positions * hidden_);
    }
    taken.rope = MakeRope(config_.rope);
    taken.local_rope = MakeRope(config_.local_rope);
    taken.bias = config_.bias;
    taken.slopes = config_.slopes;
    if (config_.convolution.has_value()) {
      taken.convolution = TakeConvolution(weights_, *config_.convolution, hidden_);
    }
    if (config_.disentangled.has_value()) {
      std::vector<const Qkv*> qkv;
      for (const Layer& layer : taken.layers) qkv.push_back(&layer.qkv);
      taken.disentangled =
          TakeDisentangled(weights_, *config_.disentangled, std::string(names_.layers), qkv);
    }
    return taken;
  }

 private:
  // Undefined if the family has no such table.
  at::Tensor TakeTable(std::string_view name, int64_t rows) {
    if (name.empty() || rows == 0) return {};
    return weights_.Take(std::string(name) + ".weight", {rows, embedding_});
  }

  Layer TakeLayer(int64_t index) {
    const std::string at = std::string(names_.layers) + "." + std::to_string(index) + ".";
    const QkvConfig qkv{.hidden = hidden_,
                        .heads = config_.info.heads,
                        .head_dim = config_.info.head_size(),
                        .key_value_heads = config_.info.key_value_heads,
                        .bias = config_.qkv_bias,
                        .norm_epsilon = config_.epsilon,
                        .norm = config_.norm,
                        .norm_heads = config_.norm_heads};
    Layer layer;
    layer.local = !config_.local.empty() && config_.local[static_cast<size_t>(index)];
    const bool normed = index == 0 && !names_.norm.empty();
    if (!normed) layer.attention_norm = Norm(at, names_.attention_norm);
    layer.qkv = TakeQkv(weights_, at, names_.qkv, qkv);
    if (config_.info.cast.has_value()) {
      const int64_t heads = config_.info.heads;
      const std::string gate = at + std::string(names_.gate);
      layer.surrogates =
          Surrogates{.tokens = weights_.Take(at + std::string(names_.surrogates),
                                             {config_.info.surrogates, heads, hidden_ / heads}),
                     .gate = Linear(weights_.Take(gate + ".weight", {1, hidden_}),
                                    weights_.Take(gate + ".bias", {1}))};
    }
    layer.attention_output =
        TakeLinear(weights_, at + std::string(names_.attention_output), hidden_,
                   config_.info.width(), config_.attention_output_bias);
    layer.attention_output_norm = Norm(at, names_.attention_output_norm);
    layer.second_attention_norm = Norm(at, names_.second_attention_norm);
    layer.mlp_norm = Norm(at, names_.mlp_norm);
    FeedForwardConfig mlp = config_.mlp;
    if (config_.mixed.empty() || !config_.mixed[static_cast<size_t>(index)]) mlp.experts = 0;
    layer.mlp = TakeFeedForward(weights_, at, names_.mlp, mlp, hidden_);
    layer.mlp_output_norm = Norm(at, names_.mlp_output_norm);
    return layer;
  }

  // Empty without a name.
  std::optional<LayerNorm> Norm(const std::string& at, std::string_view name) {
    if (name.empty()) return std::nullopt;
    return TakeNorm(weights_, at + std::string(name), hidden_, config_.epsilon, config_.norm_bias,
                    config_.norm);
  }

  std::optional<Rope> MakeRope(const std::optional<RopeConfig>& rope) const {
    if (!rope.has_value()) return std::nullopt;
    return Rope(*rope, config_.info.head_size(), weights_.device());
  }

  const TransformerConfig& config_;
  const TransformerNames& names_;
  WeightReader& weights_;
  const int64_t hidden_;
  const int64_t embedding_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Body>> BuildTransformer(const TransformerConfig& config,
                                                       const TransformerNames& names,
                                                       WeightReader& weights) {
  weights.ChoosePrefix(std::string(names.words) + ".weight", names.prefixes);
  if (weights.adapters() != nullptr) weights.adapters()->SetPrefixes(names.prefixes);
  if (weights.adapters() != nullptr && config.disentangled.has_value()) {
    return absl::InvalidArgumentError("this family, deberta-v2, is served without adapters");
  }
  TransformerWeights taken = WeightTaker(config, names, weights).Take();
  if (!weights.status().ok()) return weights.status();
  return std::make_unique<Transformer>(config.info, config.pre_norm, std::move(taken));
}

}  // namespace castor::encoder
