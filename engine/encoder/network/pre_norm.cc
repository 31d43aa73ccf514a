#include "engine/encoder/network/pre_norm.h"

#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "engine/encoder/layers/rope.h"
#include "engine/encoder/layers/self_attention.h"
#include "engine/encoder/network/surrogates.h"

namespace castor::encoder {
namespace {

struct PreNormLayer {
  bool local = false;
  std::optional<LayerNorm> attention_norm;
  Qkv qkv;
  std::optional<Surrogates> surrogates;  // of a CAST layer
  Linear attention_output;               // [hidden, heads * head_dim]
  std::optional<LayerNorm> attention_output_norm;
  LayerNorm mlp_norm;
  FeedForward mlp;
  std::optional<LayerNorm> mlp_output_norm;
};

struct PreNormWeights {
  at::Tensor words;      // [words, hidden]
  at::Tensor positions;  // [positions, hidden], or undefined
  std::optional<LayerNorm> norm;
  std::vector<PreNormLayer> layers;
  LayerNorm final_norm;
  bool rotated = true;
  Rope global_rope;
  Rope local_rope;
};

class PreNorm final : public Body {
 public:
  PreNorm(BodyInfo info, PreNormWeights weights)
      : info_(std::move(info)), weights_(std::move(weights)) {}

  const BodyInfo& info() const override { return info_; }
  BodyActivations activations() const override;
  absl::StatusOr<at::Tensor> Forward(const BodyInputs& in) const override;

 private:
  struct Rotations {
    Rotation global;
    Rotation local;
  };
  absl::StatusOr<at::Tensor> Embed(const BodyInputs& in) const;
  absl::StatusOr<Rotations> MakeRotations(const BodyInputs& in) const;
  absl::StatusOr<at::Tensor> Attend(const PreNormLayer& layer, const attention::Spec& spec,
                                    const at::Tensor& x, const Rotation* rotation,
                                    const BodyInputs& in) const;
  absl::Status Finish(const PreNormLayer& layer, const at::Tensor& mixed, const at::Tensor& x,
                      RunControl& control) const;

  const BodyInfo info_;
  const PreNormWeights weights_;
};

// How many rows go through a layer's row-wise half together, as in post_norm.cc.
constexpr int64_t kPreNormCpuRows = 1024;
int64_t RowsAtOnce(const PreNormLayer& layer, const at::Tensor& x) {
  if (!x.device().is_cpu()) return x.size(0);
  return std::min(kPreNormCpuRows,
                  RowsOfAStep(x, layer.attention_output.elements() + layer.mlp.elements()));
}

// Overwrites the rows of `x`.
absl::Status Normalize(const LayerNorm& norm, const at::Tensor& x, RunControl& control) {
  const int64_t step = x.device().is_cpu() ? kPreNormCpuRows : x.size(0);
  for (int64_t first = 0; first < x.size(0); first += step) {
    const at::Tensor rows = x.narrow(0, first, std::min(step, x.size(0) - first));
    rows.copy_(norm(rows));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> PreNorm::Forward(const BodyInputs& in) const {
  absl::StatusOr<at::Tensor> embedded = Embed(in);
  if (!embedded.ok()) return embedded;
  at::Tensor x = *std::move(embedded);
  absl::StatusOr<Rotations> rotations = MakeRotations(in);
  if (!rotations.ok()) return rotations.status();
  const attention::Spec global = GlobalAttention(info_, TypeOf(x), in.batch.kernel);
  const attention::Spec local = LocalAttention(info_, TypeOf(x));
  for (const PreNormLayer& layer : weights_.layers) {
    const Rotation* const rotation = layer.local ? &rotations->local : &rotations->global;
    absl::StatusOr<at::Tensor> mixed =
        Attend(layer, layer.local ? local : global, x, weights_.rotated ? rotation : nullptr, in);
    if (!mixed.ok()) return mixed.status();
    if (absl::Status s = in.control.Checkpoint(); !s.ok()) return s;
    if (absl::Status s = Finish(layer, *mixed, x, in.control); !s.ok()) return s;
  }
  if (absl::Status s = Normalize(weights_.final_norm, x, in.control); !s.ok()) return s;
  return x;
}

absl::StatusOr<at::Tensor> PreNorm::Embed(const BodyInputs& in) const {
  at::Tensor x = TokenRows(weights_.words, in);
  const int64_t step = x.device().is_cpu() ? kPreNormCpuRows : x.size(0);
  for (int64_t first = 0; weights_.positions.defined() && first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    x.narrow(0, first, count)
        .add_(at::index_select(weights_.positions, 0, in.positions.narrow(0, first, count)));
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
  }
  if (weights_.norm.has_value()) {
    if (absl::Status s = Normalize(*weights_.norm, x, in.control); !s.ok()) return s;
  }
  return x;
}

// What attention makes of a layer's input `x`.
absl::StatusOr<at::Tensor> PreNorm::Attend(const PreNormLayer& layer, const attention::Spec& spec,
                                           const at::Tensor& x, const Rotation* rotation,
                                           const BodyInputs& in) const {
  const LayerNorm* const norm = layer.attention_norm.has_value() ? &*layer.attention_norm : nullptr;
  const Projection projection{.qkv = layer.qkv, .before = norm, .rotation = rotation};
  if (!layer.surrogates.has_value()) return SelfAttention(projection, x, spec, in);
  const int64_t step = x.device().is_cpu() ? kPreNormCpuRows : x.size(0);
  const absl::StatusOr<at::Tensor> gates = layer.surrogates->Gates(x, *norm, step, in.control);
  if (!gates.ok()) return gates;
  return SelfAttention(projection, x, spec, in, layer.surrogates->Inputs(*gates));
}

absl::StatusOr<PreNorm::Rotations> PreNorm::MakeRotations(const BodyInputs& in) const {
  Rotations rotations;
  if (!weights_.rotated) return rotations;
  for (const auto& [rope, rotation, layers] :
       {std::tuple{&weights_.global_rope, &rotations.global, info_.layers - info_.local_layers},
        std::tuple{&weights_.local_rope, &rotations.local, info_.local_layers}}) {
    if (layers == 0) continue;
    absl::StatusOr<Rotation> made = rope->Of(in.positions, in.packing.cu_seqlens, in.control);
    if (!made.ok()) return made.status();
    *rotation = *std::move(made);
  }
  return rotations;
}

// What a part of a layer adds to its input, of what it returned.
at::Tensor Added(const at::Tensor& output, const std::optional<LayerNorm>& norm) {
  return norm.has_value() ? (*norm)(output) : output;
}

// The rest of a layer after attention, which treats every row independently: `mixed` is attention's
// output; `x` is the layer's input, and becomes its output.
absl::Status PreNorm::Finish(const PreNormLayer& layer, const at::Tensor& mixed,
                             const at::Tensor& x, RunControl& control) const {
  const int64_t step = RowsAtOnce(layer, x);
  for (int64_t first = 0; first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    const at::Tensor rows = x.narrow(0, first, count);
    rows.add_(
        Added(layer.attention_output(mixed.narrow(0, first, count)), layer.attention_output_norm));
    rows.add_(Added(layer.mlp(layer.mlp_norm(rows)), layer.mlp_output_norm));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

BodyActivations PreNorm::activations() const {
  using kernels::Count;
  const PreNormLayer& layer = weights_.layers.front();
  const auto element = static_cast<int64_t>(weights_.words.element_size());
  const Count row = Count(info_.hidden) * element;
  const Count mixed = Count(info_.width()) * element;
  const Count rotations = weights_.rotated
                              ? RotationBytes(info_.head_size()) * (info_.local_layers > 0 ? 2 : 1)
                              : Count(0);
  const bool cast = layer.surrogates.has_value();
  const Count gate_step = cast ? layer.surrogates->row_bytes() : Count(0);
  const Count gates = cast ? int64_t{sizeof(float)} : 0;
  // Beside `mixed`: the normalised rows, and what the MLP takes, its result included, which may be
  // there once more as it is normalised.
  const Count other_half =
      row + layer.mlp.row_bytes(element) + (layer.mlp_output_norm.has_value() ? row : Count(0));
  const Count step = layer.qkv.step_bytes(weights_.words, /*before=*/true, weights_.rotated);
  BodyActivations bytes{.rows = {.token = row}};
  if (!weights_.words.device().is_cpu()) {
    // Queries, keys, values, and what attention returns.
    const Count attention_half = 4 * mixed + gates;
    bytes.layers.token =
        rotations + std::max(attention_half + std::max(step, gate_step), mixed + other_half);
    return bytes;
  }
  // What attention returns is there in both halves; the other one goes in steps.
  bytes.layers.token = rotations + mixed + gates;
  bytes.qkv = QkvBytes(layer.qkv, weights_.words, cast);
  bytes.batch = std::max({kPreNormCpuRows * other_half, step, kPreNormCpuRows * gate_step});
  return bytes;
}

// Takes the weights by the family's names.
class PreNormTaker {
 public:
  PreNormTaker(const PreNormConfig& config, const PreNormNames& names, WeightReader& weights)
      : config_(config), names_(names), weights_(weights), hidden_(config.info.hidden) {}

  PreNormWeights Take() {
    PreNormWeights taken;
    taken.words = weights_.Take(std::string(names_.words) + ".weight", {config_.words, hidden_});
    if (config_.positions > 0 && !config_.sinusoidal) {
      taken.positions =
          weights_.Take(std::string(names_.positions) + ".weight", {config_.positions, hidden_});
    }
    if (!names_.norm.empty()) taken.norm = Norm(std::string(names_.norm));
    for (int64_t i = 0; i < config_.info.layers && weights_.status().ok(); ++i) {
      taken.layers.push_back(
          TakeLayer(i, std::string(names_.layers) + "." + std::to_string(i) + "."));
    }
    taken.final_norm = Norm(std::string(names_.final_norm));
    if (!weights_.status().ok()) return taken;
    if (config_.embedding_scale != 1) {
      // In the weights' type, as transformers does.
      taken.words.mul_(at::full({}, config_.embedding_scale, taken.words.options()));
    }
    if (config_.positions > 0 && config_.sinusoidal) {
      taken.positions = Sinusoids(config_.positions, hidden_).to(taken.words.options());
      weights_.CountCopies(config_.positions * hidden_);
    }
    taken.rotated = config_.rotated;
    if (!taken.rotated) return taken;
    taken.global_rope = Rope(config_.global_rope, config_.info.head_size(), taken.words.device());
    taken.local_rope = Rope(config_.local_rope, config_.info.head_size(), taken.words.device());
    return taken;
  }

 private:
  // `at` is the prefix of the layer's names.
  PreNormLayer TakeLayer(int64_t index, const std::string& at) {
    const auto name = [&](std::string_view part) { return at + std::string(part); };
    const QkvConfig qkv{.hidden = hidden_,
                        .heads = config_.info.heads,
                        .head_dim = config_.info.head_size(),
                        .key_value_heads = config_.info.key_value_heads,
                        .bias = config_.qkv_bias,
                        .norm_epsilon = config_.epsilon,
                        .norm = config_.norm,
                        .norm_heads = true};
    PreNormLayer layer;
    layer.local = config_.local[static_cast<size_t>(index)];
    if (index > 0 || names_.norm.empty()) {
      layer.attention_norm = Norm(name(names_.attention_norm));
    }
    layer.qkv = TakeQkv(weights_, at, names_.qkv, qkv);
    if (config_.info.cast.has_value()) {
      layer.surrogates = TakeSurrogates(weights_, at, names_.surrogates, names_.gate, config_.info);
    }
    layer.attention_output = TakeLinear(weights_, name(names_.attention_output), hidden_,
                                        config_.info.width(), config_.attention_output_bias);
    if (!names_.attention_output_norm.empty()) {
      layer.attention_output_norm = Norm(name(names_.attention_output_norm));
    }
    layer.mlp_norm = Norm(name(names_.mlp_norm));
    layer.mlp = TakeFeedForward(weights_, at, names_.mlp, config_.mlp, hidden_);
    if (!names_.mlp_output_norm.empty()) layer.mlp_output_norm = Norm(name(names_.mlp_output_norm));
    return layer;
  }

  LayerNorm Norm(const std::string& name) {
    return TakeNorm(weights_, name, hidden_, config_.epsilon, config_.norm_bias, config_.norm);
  }

  const PreNormConfig& config_;
  const PreNormNames& names_;
  WeightReader& weights_;
  const int64_t hidden_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Body>> BuildPreNorm(const PreNormConfig& config,
                                                   const PreNormNames& names,
                                                   WeightReader& weights) {
  weights.ChoosePrefix(std::string(names.words) + ".weight", names.prefixes);
  PreNormWeights taken = PreNormTaker(config, names, weights).Take();
  if (!weights.status().ok()) return weights.status();
  return std::make_unique<PreNorm>(config.info, std::move(taken));
}

}  // namespace castor::encoder
