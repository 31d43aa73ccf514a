#include "engine/encoder/families/bert_layout.h"

#include <string>

#include "engine/encoder/directory/config_keys.h"

namespace castor::encoder {

PostNormConfig ReadBertKeys(ConfigReader& config, const BertDefaults& defaults,
                            std::string_view positions) {
  PostNormConfig body;
  body.info = ReadBodyInfo(
      config, {.hidden = defaults.hidden, .layers = defaults.layers, .heads = defaults.heads});
  body.words = ReadSize(config, "vocab_size", defaults.vocabulary);
  body.positions = ReadSize(config, "max_position_embeddings", 512);
  body.types = config.Int("type_vocab_size", defaults.types, defaults.types == 0 ? 0 : 1, kMaxSize);
  body.mlp.width = ReadSize(config, "intermediate_size", defaults.mlp_width);
  body.epsilon = ReadEpsilon(config, "layer_norm_eps", defaults.epsilon);
  body.mlp.activation = ReadActivation(config, "hidden_act");
  const std::string type = config.String("position_embedding_type", "absolute");
  if (type != positions) {
    config.Fail("position_embedding_type",
                "\"" + type + "\" is not supported; \"" + std::string(positions) + "\" is");
  }
  RefuseTrue(config, {"is_decoder", "add_cross_attention"}, "only encoders are served");
  return body;
}

PostNormNames BertNames(std::span<const std::string_view> prefixes) {
  return {
      .prefixes = prefixes,
      .words = "embeddings.word_embeddings",
      .positions = "embeddings.position_embeddings",
      .types = "embeddings.token_type_embeddings",
      .norm = "embeddings.LayerNorm",
      .layers = "encoder.layer",
      .qkv = {.query = "attention.self.query",
              .key = "attention.self.key",
              .value = "attention.self.value"},
      .attention_output = "attention.output.dense",
      .attention_norm = "attention.output.LayerNorm",
      .mlp = {.in = "intermediate.dense", .out = "output.dense"},
      .output_norm = "output.LayerNorm",
  };
}

}  // namespace castor::encoder
