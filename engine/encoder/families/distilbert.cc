// DistilBERT: the post-norm body without token types.
//
// Reads a config.json of model_type "distilbert" and takes the weights it implies. Missing keys
// have the defaults of Hugging Face's DistilBertConfig. Sinusoidal positions are in the checkpoint
// like learned ones.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/post_norm.h"
#include "engine/kernel_table.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kDistilBertPrefixes[] = {"", "distilbert."};

constexpr PostNormNames kDistilBertNames = {
    .prefixes = kDistilBertPrefixes,
    .words = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .types = "",
    .norm = "embeddings.LayerNorm",
    .layers = "transformer.layer",
    .qkv = {.query = "attention.q_lin", .key = "attention.k_lin", .value = "attention.v_lin"},
    .attention_output = "attention.out_lin",
    .attention_norm = "sa_layer_norm",
    .mlp = {.in = "ffn.lin1", .out = "ffn.lin2"},
    .output_norm = "output_layer_norm",
};

}  // namespace

absl::StatusOr<FamilyModel> BuildDistilBert(ConfigReader& config, WeightReader& weights) {
  PostNormConfig body;
  // Each has two names, of which a file has one.
  const auto named = [&](std::string_view own, std::string_view other) {
    if (!config.Has(other)) return own;
    if (config.Has(own)) {
      config.Fail(other, "is given beside " + std::string(own) + ", another name of it");
    }
    return other;
  };
  body.info = {
      .hidden = ReadSize(config, named("dim", "hidden_size"), 768),
      .layers = config.Int(named("n_layers", "num_hidden_layers"), 6, 1, kMaxLayers),
      .heads = ReadSize(config, named("n_heads", "num_attention_heads"), 12),
      .kernels = SoftmaxKernels(),
  };
  CheckHeads(config, "n_heads", body.info);
  body.words = ReadSize(config, "vocab_size", 30522);
  body.positions = ReadSize(config, "max_position_embeddings", 512);
  body.mlp.width = ReadSize(config, "hidden_dim", 3072);
  body.epsilon = 1e-12;  // in no config
  body.mlp.activation = ReadActivation(config, "activation");
  if (!config.status().ok()) return config.status();
  InputRules rules{.vocabulary = body.words, .max_tokens = body.positions};
  absl::StatusOr<std::unique_ptr<Body>> built = BuildPostNorm(body, kDistilBertNames, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kDistilBertHeads};
}

}  // namespace castor::encoder
