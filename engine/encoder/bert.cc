#include "engine/encoder/bert.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/heartbeat.h"
#include "engine/encoder/layers.h"

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

struct BertWeights {
  at::Tensor words;      // [vocabulary, hidden]
  at::Tensor positions;  // [max_tokens, hidden]
  at::Tensor types;      // [type_vocabulary, hidden]
  LayerNorm norm;
  std::vector<Layer> layers;
};

class Bert final : public Body {
 public:
  Bert(BodyInfo info, Activation activation, BertWeights weights)
      : info_(info), activation_(activation), weights_(std::move(weights)) {}

  const BodyInfo& info() const override { return info_; }
  absl::StatusOr<at::Tensor> Forward(const BodyInputs& in) const override;

 private:
  at::Tensor FeedForward(const Layer& layer, const at::Tensor& mixed, const at::Tensor& x) const;

  const BodyInfo info_;
  const Activation activation_;
  const BertWeights weights_;
};

// How many rows go through a layer's row-wise half together. On a CPU the wide rows in between are
// to stay in its cache, and in memory that the allocator keeps rather than maps anew each time.
int64_t RowsAtOnce(const at::Tensor& x) {
  constexpr int64_t kCpuRows = 1024;
  return x.device().is_cpu() ? kCpuRows : x.size(0);
}

// A layer's projection of all rows. A CPU makes very many of them, a request larger than any batch,
// in pieces, so that the thread shows in between that it gets on.
at::Tensor Project(const Linear& projection, const at::Tensor& x) {
  constexpr int64_t kCpuRows = 16384;
  if (!x.device().is_cpu() || x.size(0) <= kCpuRows) return projection(x);
  at::Tensor rows = at::empty({x.size(0), projection.weight.size(0)}, x.options());
  for (int64_t first = 0; first < x.size(0); first += kCpuRows) {
    const int64_t count = std::min(kCpuRows, x.size(0) - first);
    rows.narrow(0, first, count).copy_(projection(x.narrow(0, first, count)));
    BeatHere();
  }
  return rows;
}

absl::StatusOr<at::Tensor> Bert::Forward(const BodyInputs& in) const {
  at::Tensor x = TokenRows(weights_.words, in);
  x.add_(at::index_select(weights_.types, 0, in.type_ids));
  x.add_(at::index_select(weights_.positions, 0, in.positions));
  x = weights_.norm(x);
  for (const Layer& layer : weights_.layers) {
    absl::StatusOr<at::Tensor> mixed = SelfAttention(Project(layer.qkv, x), info_.heads, in);
    if (!mixed.ok()) return mixed.status();
    BeatHere();
    // What follows concerns each row alone.
    const int64_t step = RowsAtOnce(x);
    for (int64_t first = 0; first < x.size(0); first += step) {
      const int64_t count = std::min(step, x.size(0) - first);
      at::Tensor rows = x.narrow(0, first, count);
      rows.copy_(FeedForward(layer, mixed->narrow(0, first, count), rows));
      BeatHere();
    }
  }
  return x;
}

// The rest of a layer after attention: `mixed` is attention's output, `x` its input.
at::Tensor Bert::FeedForward(const Layer& layer, const at::Tensor& mixed,
                             const at::Tensor& x) const {
  const at::Tensor y = layer.attention_norm.AddNorm(layer.attention_output(mixed), x);
  const at::Tensor wide = Activate(activation_, layer.intermediate(y));
  return layer.output_norm.AddNorm(layer.output(wide), y);
}

// The limits only keep sizes within what arithmetic can bear; weights decide what is real.
constexpr int64_t kMaxSize = int64_t{1} << 24;

struct BertConfig {
  BodyInfo info;
  int64_t intermediate;
  double epsilon;
  Activation activation;
};

absl::StatusOr<BertConfig> ParseBertConfig(ConfigReader& config) {
  BertConfig bert{
      .info = {.family = "bert",
               .hidden = config.Int("hidden_size", 768, 1, kMaxSize),
               .layers = config.Int("num_hidden_layers", 12, 1, 1024),
               .heads = config.Int("num_attention_heads", 12, 1, kMaxSize),
               .max_tokens = config.Int("max_position_embeddings", 512, 1, kMaxSize),
               .vocabulary = config.Int("vocab_size", 30522, 1, kMaxSize),
               .type_vocabulary = config.Int("type_vocab_size", 2, 1, kMaxSize)},
      .intermediate = config.Int("intermediate_size", 3072, 1, kMaxSize),
      .epsilon = config.Double("layer_norm_eps", 1e-12),
      .activation = Activation::kGeluErf,
  };
  if (bert.info.hidden % bert.info.heads != 0) {
    config.Fail("num_attention_heads", "does not divide hidden_size");
  }
  if (bert.epsilon < 0) config.Fail("layer_norm_eps", "must not be negative");
  const std::string activation = config.String("hidden_act", "gelu");
  if (const std::optional<Activation> known = ParseActivation(activation)) {
    bert.activation = *known;
  } else {
    config.Fail("hidden_act", "unknown activation \"" + activation + "\"");
  }
  const std::string positions = config.String("position_embedding_type", "absolute");
  if (positions != "absolute") {
    config.Fail("position_embedding_type",
                "\"" + positions + "\" is not supported; \"absolute\" is");
  }
  for (const std::string_view key : {"is_decoder", "add_cross_attention"}) {
    if (config.Bool(key, false)) config.Fail(key, "only encoders are served");
  }
  if (!config.status().ok()) return config.status();
  return bert;
}

class WeightTaker {
 public:
  WeightTaker(const BertConfig& config, WeightReader& weights)
      : config_(config), weights_(weights) {}

  BertWeights Take() {
    const BodyInfo& info = config_.info;
    const auto table = [&](std::string_view name, int64_t rows) {
      return weights_.Take("embeddings." + std::string(name) + "_embeddings.weight",
                           {rows, info.hidden});
    };
    BertWeights bert{.words = table("word", info.vocabulary),
                     .positions = table("position", info.max_tokens),
                     .types = table("token_type", info.type_vocabulary),
                     .norm = TakeNorm("embeddings.LayerNorm"),
                     .layers = {}};
    for (int64_t i = 0; i < info.layers && weights_.status().ok(); ++i) {
      bert.layers.push_back(TakeLayer("encoder.layer." + std::to_string(i) + "."));
    }
    return bert;
  }

 private:
  Layer TakeLayer(const std::string& at) {
    const int64_t hidden = config_.info.hidden;
    const std::string self = at + "attention.self.";
    return Layer{
        .qkv = {weights_.TakeStacked(
                    std::array{self + "query.weight", self + "key.weight", self + "value.weight"},
                    {hidden, hidden}),
                weights_.TakeStacked(
                    std::array{self + "query.bias", self + "key.bias", self + "value.bias"},
                    {hidden})},
        .attention_output = TakeLinear(at + "attention.output.dense", hidden, hidden),
        .attention_norm = TakeNorm(at + "attention.output.LayerNorm"),
        .intermediate = TakeLinear(at + "intermediate.dense", config_.intermediate, hidden),
        .output = TakeLinear(at + "output.dense", hidden, config_.intermediate),
        .output_norm = TakeNorm(at + "output.LayerNorm"),
    };
  }

  Linear TakeLinear(const std::string& at, int64_t out, int64_t in) {
    return {weights_.Take(at + ".weight", {out, in}), weights_.Take(at + ".bias", {out})};
  }

  LayerNorm TakeNorm(const std::string& at) {
    const int64_t hidden = config_.info.hidden;
    return {weights_.Take(at + ".weight", {hidden}), weights_.Take(at + ".bias", {hidden}),
            config_.epsilon};
  }

  const BertConfig& config_;
  WeightReader& weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Body>> BuildBert(ConfigReader& config, WeightReader& weights) {
  absl::StatusOr<BertConfig> bert = ParseBertConfig(config);
  if (!bert.ok()) return bert.status();
  constexpr std::string_view kPrefixes[] = {"", "bert."};
  weights.ChoosePrefix("embeddings.word_embeddings.weight", kPrefixes);
  BertWeights taken = WeightTaker(*bert, weights).Take();
  if (!weights.status().ok()) return weights.status();
  return std::make_unique<Bert>(bert->info, bert->activation, std::move(taken));
}

}  // namespace castor::encoder
