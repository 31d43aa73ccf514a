#include "engine/encoder/pre_norm.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "engine/encoder/gated_mlp.h"
#include "engine/encoder/rope.h"

namespace castor::encoder {
namespace {

struct PreNormLayer {
  bool local = false;
  std::optional<LayerNorm> attention_norm;
  Linear qkv;               // [3 * hidden, hidden]
  Linear attention_output;  // [hidden, hidden]
  LayerNorm mlp_norm;
  GatedMlp mlp;
};

struct PreNormWeights {
  at::Tensor words;  // [words, hidden]
  LayerNorm norm;
  std::vector<PreNormLayer> layers;
  LayerNorm final_norm;
  at::Tensor global_frequencies;  // of rotations
  at::Tensor local_frequencies;
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
  absl::StatusOr<Rotations> MakeRotations(const BodyInputs& in) const;
  absl::StatusOr<at::Tensor> Queries(const PreNormLayer& layer, const at::Tensor& x,
                                     const Rotation& rotation, RunControl& control) const;
  absl::Status FeedForward(const PreNormLayer& layer, const at::Tensor& mixed, const at::Tensor& x,
                           RunControl& control) const;

  const BodyInfo info_;
  const PreNormWeights weights_;
};

// How many rows go through a layer's row-wise half together, as in post_norm.cc.
constexpr int64_t kPreNormCpuRows = 1024;
int64_t RowsAtOnce(const PreNormLayer& layer, const at::Tensor& x) {
  if (!x.device().is_cpu()) return x.size(0);
  return std::min(kPreNormCpuRows,
                  RowsOfAStep(x, layer.attention_output.elements() + layer.mlp.in.elements() +
                                     layer.mlp.out.elements()));
}

// Overwrites the rows of `x`.
absl::Status Normalize(const LayerNorm& norm, const at::Tensor& x, RunControl& control) {
  const int64_t step = x.device().is_cpu() ? 16384 : x.size(0);
  for (int64_t first = 0; first < x.size(0); first += step) {
    const at::Tensor rows = x.narrow(0, first, std::min(step, x.size(0) - first));
    rows.copy_(norm(rows));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> PreNorm::Forward(const BodyInputs& in) const {
  at::Tensor x = TokenRows(weights_.words, in);
  if (absl::Status s = Normalize(weights_.norm, x, in.control); !s.ok()) return s;
  absl::StatusOr<Rotations> rotations = MakeRotations(in);
  if (!rotations.ok()) return rotations.status();
  const attention::Spec global = GlobalAttention(info_, TypeOf(x), in.batch.kernel);
  const attention::Spec local = LocalAttention(info_, TypeOf(x));
  for (const PreNormLayer& layer : weights_.layers) {
    absl::StatusOr<at::Tensor> qkv =
        Queries(layer, x, layer.local ? rotations->local : rotations->global, in.control);
    if (!qkv.ok()) return qkv.status();
    absl::StatusOr<at::Tensor> mixed = SelfAttention(*qkv, layer.local ? local : global, in);
    if (!mixed.ok()) return mixed.status();
    qkv->reset();
    if (absl::Status s = in.control.Checkpoint(); !s.ok()) return s;
    if (absl::Status s = FeedForward(layer, *mixed, x, in.control); !s.ok()) return s;
  }
  if (absl::Status s = Normalize(weights_.final_norm, x, in.control); !s.ok()) return s;
  return x;
}

absl::StatusOr<PreNorm::Rotations> PreNorm::MakeRotations(const BodyInputs& in) const {
  Rotations rotations;
  for (const auto& [frequencies, rotation, layers] :
       {std::tuple{&weights_.global_frequencies, &rotations.global,
                   info_.layers - info_.local_layers},
        std::tuple{&weights_.local_frequencies, &rotations.local, info_.local_layers}}) {
    if (layers == 0) continue;
    absl::StatusOr<Rotation> made = RotationOf(in.positions, *frequencies, in.control);
    if (!made.ok()) return made.status();
    *rotation = *std::move(made);
  }
  return rotations;
}

// Rotated queries, rotated keys, values: [tokens, 3 * hidden].
absl::StatusOr<at::Tensor> PreNorm::Queries(const PreNormLayer& layer, const at::Tensor& x,
                                            const Rotation& rotation, RunControl& control) const {
  const auto of_rows = [&](const at::Tensor& rows, const Rotation& turned) {
    at::Tensor qkv = layer.qkv(layer.attention_norm ? (*layer.attention_norm)(rows) : rows);
    Rotate(turned, info_.heads, qkv);
    return qkv;
  };
  const int64_t step = RowsOfAStep(x, layer.qkv.elements());
  if (x.size(0) <= step) return of_rows(x, rotation);
  at::Tensor qkv = at::empty({x.size(0), layer.qkv.out()}, x.options());
  for (int64_t first = 0; first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    qkv.narrow(0, first, count)
        .copy_(of_rows(x.narrow(0, first, count), rotation.Rows(first, count)));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return qkv;
}

// The rest of a layer after attention, which treats every row independently: `mixed` is attention's
// output; `x` is the layer's input, and becomes its output.
absl::Status PreNorm::FeedForward(const PreNormLayer& layer, const at::Tensor& mixed,
                                  const at::Tensor& x, RunControl& control) const {
  const int64_t step = RowsAtOnce(layer, x);
  for (int64_t first = 0; first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    const at::Tensor rows = x.narrow(0, first, count);
    rows.add_(layer.attention_output(mixed.narrow(0, first, count)));
    rows.add_(layer.mlp(layer.mlp_norm(rows)));
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

BodyActivations PreNorm::activations() const {
  using attention::Count;
  const PreNormLayer& layer = weights_.layers.front();
  const auto element = static_cast<int64_t>(weights_.words.element_size());
  const Count row = Count(info_.hidden) * element;
  const Count rotations =
      RotationBytes(info_.hidden / info_.heads) * (info_.local_layers > 0 ? 2 : 1);
  // Queries, keys, values, and beside them the normalised rows, then what attention returns.
  const Count attention_half = 4 * row;
  const Count other_half =
      row + layer.mlp.row_bytes(element);  // and `mixed`, or the normalised rows
  BodyActivations bytes{.rows = {.token = row}};
  if (!weights_.words.device().is_cpu()) {
    bytes.layers.token =
        rotations +
        std::max(attention_half + RotatingBytes(info_.hidden, 1, /*cpu=*/false), row + other_half);
    return bytes;
  }
  // The other half goes in steps: besides, it has no more than `mixed`, of the attention before.
  // While rows are projected in steps, a step's queries, keys and values are there twice.
  bytes.layers.token = rotations + attention_half;
  const int64_t step = RowsOfAStep(weights_.words, layer.qkv.elements());
  bytes.batch = std::max(kPreNormCpuRows * other_half,
                         step * (attention_half + layer.qkv.scratch_bytes_of_row()) +
                             RotatingBytes(info_.hidden, step, /*cpu=*/true));
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
    taken.norm = Norm(std::string(names_.norm));
    for (int64_t i = 0; i < config_.info.layers && weights_.status().ok(); ++i) {
      taken.layers.push_back(
          TakeLayer(i, std::string(names_.layers) + "." + std::to_string(i) + "."));
    }
    taken.final_norm = Norm(std::string(names_.final_norm));
    if (!weights_.status().ok()) return taken;
    const auto frequencies = [&](double theta) {
      return RopeFrequencies(theta, hidden_ / config_.info.heads, taken.words.device());
    };
    taken.global_frequencies = frequencies(config_.global_theta);
    taken.local_frequencies = frequencies(config_.local_theta);
    return taken;
  }

 private:
  // `at` is the prefix of the layer's names.
  PreNormLayer TakeLayer(int64_t index, const std::string& at) {
    const auto name = [&](std::string_view part) { return at + std::string(part); };
    const auto attention = [&](std::string_view part, int64_t out) {
      return TakeLinear(weights_, name(part), out, hidden_, config_.attention_bias);
    };
    PreNormLayer layer;
    layer.local = config_.local[static_cast<size_t>(index)];
    if (index > 0) layer.attention_norm = Norm(name(names_.attention_norm));
    layer.qkv = attention(names_.qkv, 3 * hidden_);
    layer.attention_output = attention(names_.attention_output, hidden_);
    layer.mlp_norm = Norm(name(names_.mlp_norm));
    layer.mlp = {.in = TakeLinear(weights_, name(names_.mlp_in), 2 * config_.intermediate, hidden_,
                                  config_.mlp_bias),
                 .out = TakeLinear(weights_, name(names_.mlp_out), hidden_, config_.intermediate,
                                   config_.mlp_bias),
                 .activation = config_.activation};
    return layer;
  }

  LayerNorm Norm(const std::string& name) {
    return TakeNorm(weights_, name, hidden_, config_.epsilon, config_.norm_bias);
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
