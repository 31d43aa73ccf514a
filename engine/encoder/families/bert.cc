// BERT and its close relatives: the post-norm body with a table of positions.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/transformer.h"
#include "engine/kernel_table.h"

namespace castor::encoder {

TransformerConfig ReadBertKeys(ConfigReader& config, const BertDefaults& defaults,
                               std::string_view positions) {
  TransformerConfig body;
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

TransformerNames BertNames(std::span<const std::string_view> prefixes) {
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
      .attention_output_norm = "attention.output.LayerNorm",
      .mlp = {.in = "intermediate.dense", .out = "output.dense"},
      .mlp_output_norm = "output.LayerNorm",
  };
}

// ---- BERT: token types, positions from 0. Models with ALiBi have the same model_type, and are
// read by biased_bert.cc.

constexpr std::string_view kBertPrefixes[] = {"", "bert."};

absl::StatusOr<FamilyModel> BuildBert(ConfigReader& config, WeightReader& weights) {
  if (config.String("position_embedding_type", "absolute") == "alibi") {
    return BuildJinaBert(config, weights);
  }
  const TransformerConfig body = ReadBertKeys(config, {});
  // This key belongs to custom code with ALiBi.
  const std::string mlp = config.String("feed_forward_type", "original");
  if (mlp != "original") {
    config.Fail("feed_forward_type",
                "\"" + mlp + "\" needs a position_embedding_type of \"alibi\"");
  }
  InputRules rules{.vocabulary = body.words, .types = body.types, .max_tokens = body.positions};
  return BuildFamily(config, body, BertNames(kBertPrefixes), weights, std::move(rules), kBertHeads);
}

// ---- RoBERTa, XLM-RoBERTa and CamemBERT: positions begin after the padding token's id. They
// differ in their tokenizers only.

// Checkpoints of all three have the prefix of the first, or none.
constexpr std::string_view kRobertaPrefixes[] = {"", "roberta."};

absl::StatusOr<FamilyModel> BuildRoberta(ConfigReader& config, WeightReader& weights) {
  const bool roberta = config.String("model_type", "") == "roberta";
  if (config.Has("lora_adaptations")) return BuildJinaV3(config, weights);
  const TransformerConfig body = ReadBertKeys(config, {.vocabulary = roberta ? 50265 : 30522});
  // The table's rows before the padding's are not used.
  const int64_t padding = config.Int("pad_token_id", 1, 0, body.words - 1);
  if (body.positions <= padding + 1) {
    config.Fail("max_position_embeddings", "leaves no position after pad_token_id");
  }
  InputRules rules{
      .vocabulary = body.words,
      .types = body.types,
      .max_tokens = body.positions - padding - 1,
      .first_position = padding + 1,
      .padding = padding,
  };
  return BuildFamily(config, body, BertNames(kRobertaPrefixes), weights, std::move(rules),
                     kRobertaHeads);
}

// ---- ELECTRA's discriminator or generator: embeddings may be narrower than the layers' rows, and
// are then projected.

constexpr std::string_view kElectraPrefixes[] = {"", "electra."};

absl::StatusOr<FamilyModel> BuildElectra(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body = ReadBertKeys(config, {.hidden = 256, .heads = 4, .mlp_width = 1024});
  body.info.embedding_size = ReadSize(config, "embedding_size", 128);
  InputRules rules{.vocabulary = body.words, .types = body.types, .max_tokens = body.positions};
  TransformerNames names = BertNames(kElectraPrefixes);
  names.projection = "embeddings_project";
  return BuildFamily(config, body, names, weights, std::move(rules), kElectraHeads);
}

// ---- DistilBERT: no token types. Its checkpoints hold sinusoidal positions like learned ones.

constexpr std::string_view kDistilBertPrefixes[] = {"", "distilbert."};

constexpr TransformerNames kDistilBertNames = {
    .prefixes = kDistilBertPrefixes,
    .words = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .types = "",
    .norm = "embeddings.LayerNorm",
    .layers = "transformer.layer",
    .qkv = {.query = "attention.q_lin", .key = "attention.k_lin", .value = "attention.v_lin"},
    .attention_output = "attention.out_lin",
    .attention_output_norm = "sa_layer_norm",
    .mlp = {.in = "ffn.lin1", .out = "ffn.lin2"},
    .mlp_output_norm = "output_layer_norm",
};

absl::StatusOr<FamilyModel> BuildDistilBert(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body;
  // These keys have two names; a file has one of them.
  const auto named = [&](std::string_view own, std::string_view other) {
    if (!config.Has(other)) return own;
    if (config.Has(own)) {
      config.Fail(other, "cannot be combined with " + std::string(own) + ", its other name");
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
  body.epsilon = 1e-12;  // no config has it
  body.mlp.activation = ReadActivation(config, "activation");
  InputRules rules{.vocabulary = body.words, .max_tokens = body.positions};
  return BuildFamily(config, body, kDistilBertNames, weights, std::move(rules), kDistilBertHeads);
}

}  // namespace castor::encoder
