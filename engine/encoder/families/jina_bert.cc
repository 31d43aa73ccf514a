#include "engine/encoder/families/jina_bert.h"

#include <ATen/ops/tensor.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/bert_layout.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kJinaPrefixes[] = {"", "bert."};

PostNormNames TextNames(bool gated) {
  PostNormNames names = BertNames(kJinaPrefixes);
  if (!gated) return names;
  names.mlp = {.in = "mlp.gated_layers", .out = "mlp.wo"};
  names.output_norm = "mlp.layernorm";
  return names;
}

PostNormNames CodeNames(bool gated) {
  PostNormNames names = BertNames(kJinaPrefixes);
  names.qkv.query_norm = "attention.self.layer_norm_q";
  names.qkv.key_norm = "attention.self.layer_norm_k";
  names.second_attention_norm = "layer_norm_1";
  names.mlp = {.in = gated ? "mlp.up_gated_layer" : "mlp.up_layer",
               .out = "mlp.down_layer",
               .gate_first = true};
  names.output_norm = "layer_norm_2";
  return names;
}

// "geglu" and "reglu" name their activation; "original" is an MLP without a gate.
void ReadMlp(ConfigReader& config, FeedForwardConfig* mlp) {
  constexpr std::string_view kKey = "feed_forward_type";
  // The codes of the two models have different defaults.
  if (!config.Has(kKey)) config.Fail(kKey, "is missing");
  const std::string type = config.String(kKey, "original");
  mlp->gated = type != "original";
  if (!mlp->gated) return;
  const Activation named = type == "reglu" ? Activation::kRelu : Activation::kGeluErf;
  if (type != "geglu" && type != "reglu") {
    config.Fail(kKey, "\"" + type + "\" is not supported; \"geglu\", \"reglu\", \"original\" are");
  }
  // Their code does not look at it; "gelu" is what it is where nobody set it.
  if (mlp->activation != named && mlp->activation != Activation::kGeluErf) {
    config.Fail("hidden_act", "contradicts feed_forward_type, \"" + type + "\"");
  }
  mlp->activation = named;
}

}  // namespace

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

absl::StatusOr<FamilyModel> BuildJinaBert(ConfigReader& config, WeightReader& weights) {
  PostNormConfig body = ReadBertKeys(config, {}, "alibi");
  // What a shared centroid would be cannot know how far its queries are from a key.
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
  absl::StatusOr<std::unique_ptr<Body>> built =
      BuildPostNorm(body, code ? CodeNames(body.mlp.gated) : TextNames(body.mlp.gated), weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kBertHeads};
}

}  // namespace castor::encoder
