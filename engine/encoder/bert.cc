#include "engine/encoder/bert.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/encoder/layers.h"
#include "engine/encoder/post_norm.h"
#include "engine/kernel_table.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kPrefixes[] = {"", "bert."};

constexpr PostNormNames kNames = {
    .prefixes = kPrefixes,
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

// The limits only keep size arithmetic from overflowing; the weights' shapes decide what is valid.
constexpr int64_t kMaxSize = int64_t{1} << 24;

struct BertConfig {
  PostNormConfig body;
  InputRules rules;
};

absl::StatusOr<BertConfig> ParseBertConfig(ConfigReader& config) {
  BertConfig bert;
  PostNormConfig& body = bert.body;
  body.info = {
      .family = "bert",
      .hidden = config.Int("hidden_size", 768, 1, kMaxSize),
      .layers = config.Int("num_hidden_layers", 12, 1, 1024),
      .heads = config.Int("num_attention_heads", 12, 1, kMaxSize),
      // CAST needs surrogate tokens, which BERT is not trained with.
      .kernels = SoftmaxKernels(),
  };
  body.positions = config.Int("max_position_embeddings", 512, 1, kMaxSize);
  bert.rules.max_tokens = body.positions;
  bert.rules.vocabulary = body.words = config.Int("vocab_size", 30522, 1, kMaxSize);
  bert.rules.types = body.types = config.Int("type_vocab_size", 2, 1, kMaxSize);
  body.intermediate = config.Int("intermediate_size", 3072, 1, kMaxSize);
  body.epsilon = config.Double("layer_norm_eps", 1e-12);
  if (body.info.hidden % body.info.heads != 0) {
    config.Fail("num_attention_heads", "does not divide hidden_size");
  }
  if (body.epsilon < 0) config.Fail("layer_norm_eps", "must not be negative");
  const std::string activation = config.String("hidden_act", "gelu");
  if (const std::optional<Activation> known = ParseActivation(activation)) {
    body.activation = *known;
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

}  // namespace

absl::StatusOr<FamilyModel> BuildBert(ConfigReader& config, WeightReader& weights) {
  absl::StatusOr<BertConfig> bert = ParseBertConfig(config);
  if (!bert.ok()) return bert.status();
  absl::StatusOr<std::unique_ptr<Body>> body = BuildPostNorm(bert->body, kNames, weights);
  if (!body.ok()) return body.status();
  return FamilyModel{*std::move(body), std::move(bert->rules)};
}

}  // namespace castor::encoder
