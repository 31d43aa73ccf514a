#include "engine/encoder/distilbert.h"

#include <memory>
#include <string_view>
#include <utility>

#include "engine/encoder/config_keys.h"
#include "engine/encoder/post_norm.h"
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
    .query = "attention.q_lin",
    .key = "attention.k_lin",
    .value = "attention.v_lin",
    .attention_output = "attention.out_lin",
    .attention_norm = "sa_layer_norm",
    .intermediate = "ffn.lin1",
    .output = "ffn.lin2",
    .output_norm = "output_layer_norm",
};

}  // namespace

absl::StatusOr<FamilyModel> BuildDistilBert(ConfigReader& config, WeightReader& weights) {
  PostNormConfig body;
  body.info = {
      .hidden = ReadSize(config, "dim", 768),
      .layers = config.Int("n_layers", 6, 1, kMaxLayers),
      .heads = ReadSize(config, "n_heads", 12),
      .kernels = SoftmaxKernels(),
  };
  CheckHeads(config, "n_heads", body.info);
  body.words = ReadSize(config, "vocab_size", 30522);
  body.positions = ReadSize(config, "max_position_embeddings", 512);
  body.intermediate = ReadSize(config, "hidden_dim", 3072);
  body.epsilon = 1e-12;  // in no config
  body.activation = ReadActivation(config, "activation");
  if (!config.status().ok()) return config.status();
  InputRules rules{.vocabulary = body.words, .max_tokens = body.positions};
  absl::StatusOr<std::unique_ptr<Body>> built = BuildPostNorm(body, kDistilBertNames, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kDistilBertHeads};
}

}  // namespace castor::encoder
