// ELECTRA's discriminator, or a generator of the same kind: BERT, whose embeddings may be narrower
// than the layers' rows and are then projected to them.
//
// Reads a config.json of model_type "electra" and takes the weights it implies. Missing keys have
// the defaults of Hugging Face's ElectraConfig.
#include <memory>
#include <string_view>
#include <utility>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/bert_layout.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kElectraPrefixes[] = {"", "electra."};

}  // namespace

absl::StatusOr<FamilyModel> BuildElectra(ConfigReader& config, WeightReader& weights) {
  PostNormConfig body = ReadBertKeys(config, {.hidden = 256, .heads = 4, .mlp_width = 1024});
  body.info.embedding_size = ReadSize(config, "embedding_size", 128);
  if (!config.status().ok()) return config.status();
  InputRules rules{.vocabulary = body.words, .types = body.types, .max_tokens = body.positions};
  PostNormNames names = BertNames(kElectraPrefixes);
  names.projection = "embeddings_project";
  absl::StatusOr<std::unique_ptr<Body>> built = BuildPostNorm(body, names, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kElectraHeads};
}

}  // namespace castor::encoder
