// Encoders that were trained with CAST (attention/cast/cast.md): the pre-norm body with surrogate
// tokens and a gate in each layer, and positions added to the word embeddings. The format is
// Castor's own, for models trained from scratch: that page has its keys and the names of its
// weights, and tests/cast/ trains one.
//
// Unknown keys are errors, and so are missing sizes.
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/transformer.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kCastPrefixes[] = {""};

constexpr TransformerNames kCastNames = {
    .prefixes = kCastPrefixes,
    .words = "embeddings.words",
    .positions = "embeddings.positions",
    .final_norm = "final_norm",
    .layers = "layers",
    .attention_norm = "attention_norm",
    .qkv = {.query = "attention.query", .key = "attention.key", .value = "attention.value"},
    .attention_output = "attention.output",
    .mlp_norm = "mlp_norm",
    .mlp = {.in = "mlp.in", .out = "mlp.out"},
    .surrogates = "surrogate_tokens",
    .gate = "gate",
};

// The keys of the body and of heads, and those that the saving program writes.
constexpr std::string_view kKnownKeys =
    "model_type vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
    "hidden_act layer_norm_eps max_position_embeddings position_embedding_type cast_clusters "
    "cast_cluster_size cast_clustering cast_attention_function cast_gate_temperature "
    "cast_head_clustering architectures classifier_pooling id2label label2id num_labels "
    "problem_type tie_word_embeddings sentence_transformers dtype torch_dtype "
    "transformers_version";

void CheckKeys(ConfigReader& config) {
  for (const auto& [name, value] : config.json().items()) {
    if (!IsAmong(kKnownKeys, name)) config.Fail(name, "is not known");
  }
}

int64_t RequireSize(ConfigReader& config, std::string_view key, int64_t most = kMaxSize) {
  if (!config.Has(key)) config.Fail(key, "is missing");
  return config.Int(key, 1, 1, most);
}

template <typename Value>
struct Choice {
  std::string_view name;
  Value value;
};

// The value of the choice that config.json names; the first if the key is missing.
template <typename Value>
Value Choose(ConfigReader& config, std::string_view key,
             const std::array<Choice<Value>, 2>& choices) {
  const std::string name = config.String(key, choices[0].name);
  for (const Choice<Value>& choice : choices) {
    if (name == choice.name) return choice.value;
  }
  config.Fail(key, "\"" + name + "\" is not known; \"" + std::string(choices[0].name) +
                       "\" and \"" + std::string(choices[1].name) + "\" are");
  return choices[0].value;
}

Cast ReadParameters(ConfigReader& config) {
  using Clustering = Cast::Clustering;
  using Function = Cast::AttentionFunction;
  using Temperature = Cast::GateTemperature;
  using Heads = Cast::HeadClustering;
  Cast cast;
  cast.clustering =
      Choose<Clustering>(config, "cast_clustering",
                         {{{"top_k", Clustering::kTopK},
                           {"single_assignment_top_k", Clustering::kSingleAssignmentTopK}}});
  cast.attention_function =
      Choose<Function>(config, "cast_attention_function",
                       {{{"softmax", Function::kSoftmax}, {"laplace", Function::kLaplace}}});
  cast.gate_temperature =
      Choose<Temperature>(config, "cast_gate_temperature",
                          {{{"softplus1", Temperature::kSoftplus1}, {"none", Temperature::kNone}}});
  cast.head_clustering =
      Choose<Heads>(config, "cast_head_clustering",
                    {{{"shared", Heads::kShared}, {"per_head", Heads::kPerHead}}});
  // A sequence's own length counts, as in the kernel, never its batch's.
  if (config.Has("cast_cluster_size")) {
    cast.cluster_size = static_cast<int32_t>(
        config.Int("cast_cluster_size", 1, 1, std::numeric_limits<int32_t>::max()));
  }
  return cast;
}

// Checks that clusters have a place for every token of the longest sequence.
void CheckRoom(ConfigReader& config, const BodyInfo& info, int64_t tokens) {
  const Cast& cast = *info.cast;
  const bool single = cast.clustering == Cast::Clustering::kSingleAssignmentTopK;
  if (!single || cast.cluster_size == 0) return;
  if (info.surrogates * cast.cluster_size >= tokens) return;
  config.Fail("cast_cluster_size",
              "times cast_clusters is less than max_position_embeddings, and "
              "single_assignment_top_k needs a place for every token");
}

// A classifier of bytes has no first token that stands for the whole text, so there is no default.
void CheckPooling(ConfigReader& config) {
  const std::vector<std::string> names = config.Strings("architectures");
  const bool sequences = !names.empty() && names.front().ends_with("ForSequenceClassification");
  if (sequences && !config.Has("classifier_pooling")) {
    config.Fail("classifier_pooling", "is missing");
  }
}

}  // namespace

absl::StatusOr<FamilyModel> BuildCastorCast(ConfigReader& config, WeightReader& weights) {
  CheckKeys(config);
  CheckPooling(config);
  TransformerConfig body;
  body.info = {
      .hidden = RequireSize(config, "hidden_size"),
      .layers = RequireSize(config, "num_hidden_layers", kMaxLayers),
      .heads = RequireSize(config, "num_attention_heads"),
      .kernels = {KernelName::kCast},
      .cast = ReadParameters(config),
      .surrogates = RequireSize(config, "cast_clusters"),
  };
  CheckHeads(config, "num_attention_heads", body.info);
  body.words = RequireSize(config, "vocab_size");
  body.pre_norm = true;
  body.sinusoidal =
      Choose<bool>(config, "position_embedding_type", {{{"learned", false}, {"sinusoidal", true}}});
  // No file holds sinusoids, so nothing else bounds their size.
  constexpr int64_t kMostSinusoids = 1 << 18;
  body.positions =
      RequireSize(config, "max_position_embeddings", body.sinusoidal ? kMostSinusoids : kMaxSize);
  body.mlp = {.width = RequireSize(config, "intermediate_size"),
              .activation = ReadActivation(config, "hidden_act")};
  body.epsilon = ReadEpsilon(config, "layer_norm_eps", 1e-5);
  CheckRoom(config, body.info, body.positions);
  InputRules rules{.vocabulary = body.words, .max_tokens = body.positions};
  return BuildFamily(config, body, kCastNames, weights, std::move(rules), kCastorCastHeads);
}

}  // namespace castor::encoder
