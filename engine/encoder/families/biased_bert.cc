// BERT with a bias on scores by the distance of two tokens: ALiBi's slopes, as in
// jina-embeddings-v2, and MPNet.
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/transformer.h"

namespace castor::encoder {

// ---- BERT with ALiBi (Press et al. 2021, arXiv 2108.12409) instead of positions, and a gated MLP.
// The models for code have norms over queries and keys, and a second norm after attention. Both
// kinds have the model_type "bert"; the weights' names tell them apart.

namespace {

constexpr std::string_view kJinaPrefixes[] = {"", "bert."};

TransformerNames TextNames(bool gated) {
  TransformerNames names = BertNames(kJinaPrefixes);
  if (!gated) return names;
  names.mlp = {.in = "mlp.gated_layers", .out = "mlp.wo"};
  names.mlp_output_norm = "mlp.layernorm";
  return names;
}

TransformerNames CodeNames(bool gated) {
  TransformerNames names = BertNames(kJinaPrefixes);
  names.qkv.query_norm = "attention.self.layer_norm_q";
  names.qkv.key_norm = "attention.self.layer_norm_k";
  names.second_attention_norm = "layer_norm_1";
  names.mlp = {.in = gated ? "mlp.up_gated_layer" : "mlp.up_layer",
               .out = "mlp.down_layer",
               .gate_first = true};
  names.mlp_output_norm = "layer_norm_2";
  return names;
}

// "geglu" and "reglu" name their activation; "original" has no gate.
void ReadMlp(ConfigReader& config, FeedForwardConfig* mlp) {
  constexpr std::string_view kKey = "feed_forward_type";
  // The two kinds of models have different defaults.
  if (!config.Has(kKey)) config.Fail(kKey, "is missing");
  const std::string type = config.String(kKey, "original");
  mlp->gated = type != "original";
  if (!mlp->gated) return;
  const Activation named = type == "reglu" ? Activation::kRelu : Activation::kGeluErf;
  if (type != "geglu" && type != "reglu") {
    config.Fail(kKey, "\"" + type + "\" is not supported; \"geglu\", \"reglu\", \"original\" are");
  }
  // Their code ignores hidden_act, whose default is "gelu".
  if (mlp->activation != named && mlp->activation != Activation::kGeluErf) {
    config.Fail("hidden_act", "contradicts feed_forward_type, \"" + type + "\"");
  }
  mlp->activation = named;
}

// ALiBi's slopes: of a power of two heads, powers of 2^(-8 / heads); otherwise those of the next
// lower power, then every second one of the next higher.
std::vector<float> AlibiSlopes(int64_t heads) {
  const auto powers = [](int64_t count) {
    std::vector<float> slopes;
    for (int64_t h = 1; h <= count; ++h) {
      slopes.push_back(static_cast<float>(
          std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(count))));
    }
    return slopes;
  };
  const auto lower = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes = powers(lower);
  const std::vector<float> higher = powers(2 * lower);
  for (int64_t h = 0; h < heads - lower; ++h) slopes.push_back(higher[2 * h]);
  return slopes;
}

}  // namespace

absl::StatusOr<FamilyModel> BuildJinaBert(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body = ReadBertKeys(config, {}, "alibi");
  // Queries that share a centroid differ in their distance from a key.
  body.info.kernels = {KernelName::kVanilla};
  InputRules rules{.vocabulary = body.words, .types = body.types, .max_tokens = body.positions};
  body.positions = 0;
  ReadMlp(config, &body.mlp);
  if (!config.status().ok()) return config.status();

  weights.ChoosePrefix("embeddings.word_embeddings.weight", kJinaPrefixes);
  const bool code = weights.Has("encoder.layer.0.attention.self.layer_norm_q.weight");
  body.mlp.in_bias = !body.mlp.gated && !code;
  const std::vector<float> slopes = AlibiSlopes(body.info.heads);
  body.slopes = at::tensor(slopes, at::kFloat).to(weights.device());
  return BuildFamily(config, body, code ? CodeNames(body.mlp.gated) : TextNames(body.mlp.gated),
                     weights, std::move(rules), kBertHeads);
}

// ---- MPNet: a bias by distance, shared by all layers; positions from 2; no token types.

namespace {

constexpr std::string_view kMpnetPrefixes[] = {"", "mpnet."};

constexpr TransformerNames kMpnetNames = {
    .prefixes = kMpnetPrefixes,
    .words = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .types = "",
    .norm = "embeddings.LayerNorm",
    .layers = "encoder.layer",
    .qkv = {.query = "attention.attn.q", .key = "attention.attn.k", .value = "attention.attn.v"},
    .attention_output = "attention.attn.o",
    .attention_output_norm = "attention.LayerNorm",
    .mlp = {.in = "intermediate.dense", .out = "output.dense"},
    .mlp_output_norm = "output.LayerNorm",
};

constexpr int64_t kBuckets = 32;
constexpr int64_t kFarthest = 128;  // from here on, a side has one bucket

// The model's code has this as a constant and ignores pad_token_id.
constexpr int64_t kMpnetPadding = 1;

// The bucket of a distance, key - query. Each side has sixteen: eight for single distances, then
// wider ones up to 128. Farther distances share the last.
int64_t BucketOf(int64_t distance) {
  constexpr int64_t kSide = kBuckets / 2;
  constexpr int64_t kExact = kSide / 2;
  const int64_t side = distance > 0 ? kSide : 0;
  const int64_t length = std::abs(distance);
  if (length < kExact) return side + length;
  // 8 + floor(8 * log(length / 8) / log(128 / 8)), in integers: each bucket begins sqrt(2) times as
  // far away as the one before.
  int64_t bucket = kExact;
  while (bucket + 1 < kSide && length * length >= (kExact * kExact) << (bucket + 1 - kExact)) {
    ++bucket;
  }
  return side + bucket;
}

// The biases of all heads by distance, float32 [heads, 2 * kFarthest + 1].
at::Tensor TakePositionBias(WeightReader& weights, int64_t heads) {
  weights.ChoosePrefix(std::string(kMpnetNames.words) + ".weight", kMpnetPrefixes);
  const at::Tensor buckets =
      weights.Take("encoder.relative_attention_bias.weight", {kBuckets, heads});
  if (!weights.status().ok()) return {};
  std::vector<int64_t> of_distance;
  for (int64_t d = -kFarthest; d <= kFarthest; ++d) of_distance.push_back(BucketOf(d));
  const at::Tensor rows = at::tensor(of_distance, at::kLong).to(buckets.device());
  return at::index_select(buckets, 0, rows).to(at::kFloat).t().contiguous();
}

}  // namespace

absl::StatusOr<FamilyModel> BuildMpnet(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body = ReadBertKeys(config, {.vocabulary = 30527});
  // Queries that share a centroid differ in their distance from a key.
  body.info.kernels = {KernelName::kVanilla};
  if (config.Int("relative_attention_num_buckets", kBuckets, 1, kMaxSize) != kBuckets) {
    config.Fail("relative_attention_num_buckets", "must be 32, which MPNet's code assumes");
  }
  if (body.words <= kMpnetPadding) config.Fail("vocab_size", "leaves no id for padding");
  if (body.positions <= kMpnetPadding + 1) {
    config.Fail("max_position_embeddings", "leaves no position after the padding's");
  }
  if (!config.status().ok()) return config.status();
  body.bias = TakePositionBias(weights, body.info.heads);
  InputRules rules{
      .vocabulary = body.words,
      .max_tokens = body.positions - kMpnetPadding - 1,
      .first_position = kMpnetPadding + 1,
      .padding = kMpnetPadding,
  };
  return BuildFamily(config, body, kMpnetNames, weights, std::move(rules), kRobertaHeads);
}

}  // namespace castor::encoder
