// EuroBERT: the pre-norm body with RMSNorms, rotated queries and keys, and a gated MLP; layers as
// language models have them, that see all tokens. Several heads may share keys and values.
//
// Reads a config.json of model_type "eurobert", in the keys of its own code or of transformers 5,
// and takes the weights it implies.
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/directory/rope_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/pre_norm.h"

namespace castor::encoder {
namespace {

// Checkpoints of a head's class have the prefix.
constexpr std::string_view kEuroBertPrefixes[] = {"", "model."};

constexpr PreNormNames kEuroBertNames = {
    .prefixes = kEuroBertPrefixes,
    .words = "embed_tokens",
    .final_norm = "norm",
    .layers = "layers",
    .attention_norm = "input_layernorm",
    .qkv = {.query = "self_attn.q_proj", .key = "self_attn.k_proj", .value = "self_attn.v_proj"},
    .attention_output = "self_attn.o_proj",
    .mlp_norm = "post_attention_layernorm",
    .mlp = {.in = "mlp.gate_proj", .gate = "mlp.up_proj", .out = "mlp.down_proj"},
};

}  // namespace

absl::StatusOr<FamilyModel> BuildEuroBert(ConfigReader& config, WeightReader& weights) {
  PreNormConfig body;
  body.info = ReadBodyInfo(config, {.hidden = 768, .layers = 12, .heads = 12});
  const int64_t heads = body.info.heads;
  body.info.key_value_heads = ReadKeyValueHeads(config, heads, heads);
  CheckHeadDim(config, body.info);
  body.local.assign(static_cast<size_t>(body.info.layers), false);
  body.words = ReadSize(config, "vocab_size", 128'256);
  const bool mlp_bias = config.Bool("mlp_bias", false);
  body.mlp = {.width = ReadSize(config, "intermediate_size", 3072),
              .activation = ReadActivation(config, "hidden_act", "silu"),
              .gated = true,
              .in_bias = mlp_bias,
              .out_bias = mlp_bias};
  body.epsilon = ReadEpsilon(config, "rms_norm_eps", 1e-5);
  body.norm = NormKind::kRmsNorm;
  body.qkv_bias = body.attention_output_bias = config.Bool("attention_bias", false);
  body.global_rope = ReadRope(config, 10'000, {});
  CheckRotated(config, "num_attention_heads", body.info.hidden / heads, body.global_rope);
  RefuseTrue(config, {"is_decoder", "add_cross_attention"}, "only encoders are served");
  InputRules rules{.vocabulary = body.words,
                   .max_tokens = ReadSize(config, "max_position_embeddings", 8192)};
  if (!config.status().ok()) return config.status();
  absl::StatusOr<std::unique_ptr<Body>> built = BuildPreNorm(body, kEuroBertNames, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kEuroBertHeads};
}

}  // namespace castor::encoder
