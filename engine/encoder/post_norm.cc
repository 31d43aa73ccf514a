#include "engine/encoder/post_norm.h"

#include <ATen/ops/index_select.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace castor::encoder {
namespace {

struct Layer {
  Linear qkv;               // [3 * hidden, hidden]
  Linear attention_output;  // [hidden, hidden]
  LayerNorm attention_norm;
  Linear intermediate;  // [intermediate, hidden]
  Linear output;        // [hidden, intermediate]
  LayerNorm output_norm;
};

struct PostNormWeights {
  at::Tensor bias;       // as in PostNormConfig
  at::Tensor words;      // [words, hidden]
  at::Tensor positions;  // [positions, hidden]
  at::Tensor types;      // [types, hidden], or undefined
  LayerNorm norm;
  std::vector<Layer> layers;
};

class PostNorm final : public Body {
 public:
  PostNorm(BodyInfo info, Activation activation, PostNormWeights weights)
      : info_(std::move(info)), activation_(activation), weights_(std::move(weights)) {
    if (!weights_.bias.defined()) return;
    info_.bias.table = weights_.bias.const_data_ptr<float>();
    info_.bias.reach = weights_.bias.size(1) / 2;
  }

  const BodyInfo& info() const override { return info_; }
  BodyActivations activations() const override;
  absl::StatusOr<at::Tensor> Forward(const BodyInputs& in) const override;

 private:
  absl::StatusOr<at::Tensor> Embed(const BodyInputs& in) const;
  void FeedForward(const Layer& layer, const at::Tensor& mixed, const at::Tensor& x) const;

  BodyInfo info_;  // constant once built
  const Activation activation_;
  const PostNormWeights weights_;
};

// How many rows go through a layer's row-wise half together. On a CPU the wide rows in between
// should stay in the cache, and in memory that the allocator reuses rather than maps anew each
// time.
constexpr int64_t kCpuRows = 1024;
int64_t RowsAtOnce(const Layer& layer, const at::Tensor& x) {
  if (!x.device().is_cpu()) return x.size(0);
  return std::min(kCpuRows,
                  RowsOfAStep(x, layer.attention_output.elements() + layer.intermediate.elements() +
                                     layer.output.elements()));
}

absl::StatusOr<at::Tensor> PostNorm::Forward(const BodyInputs& in) const {
  absl::StatusOr<at::Tensor> x = Embed(in);
  if (!x.ok()) return x;
  const attention::Spec attention = GlobalAttention(info_, TypeOf(weights_.words), in.batch.kernel);
  for (const Layer& layer : weights_.layers) {
    absl::StatusOr<at::Tensor> qkv = Project(layer.qkv, *x, in.control);
    if (!qkv.ok()) return qkv.status();
    absl::StatusOr<at::Tensor> mixed = SelfAttention(*qkv, attention, in);
    if (!mixed.ok()) return mixed.status();
    qkv->reset();
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
    // The rest of the layer treats every row independently.
    const int64_t step = RowsAtOnce(layer, *x);
    for (int64_t first = 0; first < x->size(0); first += step) {
      const int64_t count = std::min(step, x->size(0) - first);
      FeedForward(layer, mixed->narrow(0, first, count), x->narrow(0, first, count));
      if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
    }
  }
  return x;
}

absl::StatusOr<at::Tensor> PostNorm::Embed(const BodyInputs& in) const {
  at::Tensor x = TokenRows(weights_.words, in);
  const int64_t step = x.device().is_cpu() ? 16384 : x.size(0);
  for (int64_t first = 0; first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    at::Tensor rows = x.narrow(0, first, count);
    if (weights_.types.defined()) {
      rows.add_(at::index_select(weights_.types, 0, in.type_ids.narrow(0, first, count)));
    }
    rows.add_(at::index_select(weights_.positions, 0, in.positions.narrow(0, first, count)));
    rows.copy_(weights_.norm(rows));
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
  }
  return x;
}

// The rest of a layer after attention: `mixed` is attention's output, `x` its input, which becomes
// the layer's output.
void PostNorm::FeedForward(const Layer& layer, const at::Tensor& mixed, const at::Tensor& x) const {
  const at::Tensor y = layer.attention_norm.AddNorm(layer.attention_output(mixed), x);
  const at::Tensor wide = layer.intermediate(y, activation_);
  layer.output_norm.AddNorm(layer.output(wide), y, x);
}

BodyActivations PostNorm::activations() const {
  using attention::Count;
  const Layer& layer = weights_.layers.front();
  const auto element = static_cast<int64_t>(weights_.words.element_size());
  const Count row = Count(info_.hidden) * element;
  const Count wide = Count(layer.intermediate.out()) * element;
  // At most at a time in FeedForward: `wide`, with what its activation needs, and of single width
  // `y`, the output, and that once more as it is normalised.
  const Count wides = activation_ == Activation::kQuickGelu ? 3 * wide : wide;
  const Count attention_half = 4 * row;  // queries, keys, values and what attention returns
  const Count other_half = 4 * row + wides;
  BodyActivations bytes{.rows = {.token = row}};
  if (!weights_.words.device().is_cpu()) {
    bytes.layers.token = std::max(attention_half, other_half);
    return bytes;
  }
  // The other half goes in steps: of single width it has no more than the attention before. While
  // rows are projected in steps, a step's queries, keys and values are there twice, and no result
  // of attention yet.
  bytes.layers.token = attention_half;
  bytes.batch =
      std::max(kCpuRows * wides, RowsOfAStep(weights_.words, layer.qkv.elements()) * (2 * row));
  return bytes;
}

std::string Join(const std::string& first, std::string_view second) {
  return first + std::string(second);
}

// Takes the weights by the family's names.
class WeightTaker {
 public:
  WeightTaker(const PostNormConfig& config, const PostNormNames& names, WeightReader& weights)
      : config_(config), names_(names), weights_(weights), hidden_(config.info.hidden) {}

  PostNormWeights Take() {
    PostNormWeights taken;
    taken.words = TakeTable(names_.words, config_.words);
    taken.positions = TakeTable(names_.positions, config_.positions);
    if (!names_.types.empty()) taken.types = TakeTable(names_.types, config_.types);
    taken.norm = Norm(std::string(names_.norm));
    for (int64_t i = 0; i < config_.info.layers && weights_.status().ok(); ++i) {
      taken.layers.push_back(TakeLayer(std::string(names_.layers) + "." + std::to_string(i) + "."));
    }
    return taken;
  }

 private:
  at::Tensor TakeTable(std::string_view name, int64_t rows) {
    return weights_.Take(std::string(name) + ".weight", {rows, hidden_});
  }

  // `at` is the prefix of one layer's names.
  Layer TakeLayer(const std::string& at) {
    const std::array qkv = {Join(at, names_.query), Join(at, names_.key), Join(at, names_.value)};
    const auto linear = [&](std::string_view name, int64_t out, int64_t in) {
      return TakeLinear(weights_, Join(at, name), out, in);
    };
    return Layer{
        .qkv = TakeStackedLinear(weights_, qkv, hidden_, hidden_),
        .attention_output = linear(names_.attention_output, hidden_, hidden_),
        .attention_norm = Norm(Join(at, names_.attention_norm)),
        .intermediate = linear(names_.intermediate, config_.intermediate, hidden_),
        .output = linear(names_.output, hidden_, config_.intermediate),
        .output_norm = Norm(Join(at, names_.output_norm)),
    };
  }

  LayerNorm Norm(const std::string& name) {
    return TakeNorm(weights_, name, hidden_, config_.epsilon);
  }

  const PostNormConfig& config_;
  const PostNormNames& names_;
  WeightReader& weights_;
  const int64_t hidden_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Body>> BuildPostNorm(const PostNormConfig& config,
                                                    const PostNormNames& names,
                                                    WeightReader& weights) {
  weights.ChoosePrefix(std::string(names.words) + ".weight", names.prefixes);
  PostNormWeights taken = WeightTaker(config, names, weights).Take();
  taken.bias = config.bias;
  if (!weights.status().ok()) return weights.status();
  return std::make_unique<PostNorm>(config.info, config.activation, std::move(taken));
}

}  // namespace castor::encoder
