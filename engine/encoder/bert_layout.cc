#include "engine/encoder/bert_layout.h"

#include <string>

#include "engine/encoder/config_keys.h"
#include "engine/kernel_table.h"

namespace castor::encoder {

PostNormConfig ReadBertKeys(ConfigReader& config, int64_t vocabulary) {
  PostNormConfig body;
  body.info = {
      .hidden = ReadSize(config, "hidden_size", 768),
      .layers = config.Int("num_hidden_layers", 12, 1, kMaxLayers),
      .heads = ReadSize(config, "num_attention_heads", 12),
      // CAST needs surrogate tokens, which these are not trained with.
      .kernels = SoftmaxKernels(),
  };
  CheckHeads(config, "num_attention_heads", body.info);
  body.words = ReadSize(config, "vocab_size", vocabulary);
  body.positions = ReadSize(config, "max_position_embeddings", 512);
  body.types = ReadSize(config, "type_vocab_size", 2);
  body.intermediate = ReadSize(config, "intermediate_size", 3072);
  body.epsilon = config.Double("layer_norm_eps", 1e-12);
  if (body.epsilon < 0) config.Fail("layer_norm_eps", "must not be negative");
  body.activation = ReadActivation(config, "hidden_act");
  const std::string positions = config.String("position_embedding_type", "absolute");
  if (positions != "absolute") {
    config.Fail("position_embedding_type",
                "\"" + positions + "\" is not supported; \"absolute\" is");
  }
  for (const std::string_view key : {"is_decoder", "add_cross_attention"}) {
    if (config.Bool(key, false)) config.Fail(key, "only encoders are served");
  }
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
      .query = "attention.self.query",
      .key = "attention.self.key",
      .value = "attention.self.value",
      .attention_output = "attention.output.dense",
      .attention_norm = "attention.output.LayerNorm",
      .intermediate = "intermediate.dense",
      .output = "output.dense",
      .output_norm = "output.LayerNorm",
  };
}

}  // namespace castor::encoder
