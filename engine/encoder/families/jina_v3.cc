// jina-embeddings-v3 without its adapters: XLM-RoBERTa's layers, with rotated queries and keys in
// place of a table of positions.
//
// Reads a config.json of model_type "jina_embeddings_v3", as transformers 5 has it, and takes the
// weights it implies. Adapters are refused.
#include <memory>
#include <string_view>
#include <utility>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/directory/rope_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kJinaV3Prefixes[] = {"", "roberta."};

constexpr PostNormNames kJinaV3Names = {
    .prefixes = kJinaV3Prefixes,
    .words = "embeddings.word_embeddings",
    .types = "embeddings.token_type_embeddings",
    .norm = "emb_ln",
    .layers = "encoder.layers",
    .qkv = {.query = "mixer.Wqkv"},
    .attention_output = "mixer.out_proj",
    .attention_norm = "norm1",
    .mlp = {.in = "mlp.fc1", .out = "mlp.fc2"},
    .output_norm = "norm2",
};

}  // namespace

absl::StatusOr<FamilyModel> BuildJinaV3(ConfigReader& config, WeightReader& weights) {
  PostNormConfig body;
  body.info = ReadBodyInfo(config, {.hidden = 1024, .layers = 24, .heads = 16});
  body.words = ReadSize(config, "vocab_size", 250'002);
  body.types = ReadSize(config, "type_vocab_size", 1);
  body.mlp = {.width = ReadSize(config, "intermediate_size", 4096),
              .activation = ReadActivation(config, "hidden_act")};
  body.epsilon = ReadEpsilon(config, "layer_norm_eps", 1e-5);
  body.rope = ReadRope(config, 20'000, {});
  CheckRotated(config, "num_attention_heads", body.info.hidden / body.info.heads, *body.rope);
  if (config.Has("lora_adaptations")) {
    config.Fail("lora_adaptations", "adapters are not supported");
  }
  RefuseTrue(config, {"is_decoder", "add_cross_attention"}, "only encoders are served");
  InputRules rules{.vocabulary = body.words,
                   .types = body.types,
                   .max_tokens = ReadSize(config, "max_position_embeddings", 8194)};
  if (!config.status().ok()) return config.status();
  absl::StatusOr<std::unique_ptr<Body>> built = BuildPostNorm(body, kJinaV3Names, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kJinaV3Heads};
}

}  // namespace castor::encoder
