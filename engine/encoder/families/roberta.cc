// RoBERTa, XLM-RoBERTa and CamemBERT: BERT's layers, with positions that begin behind the padding
// token's id. They differ in their tokenizers, of which nothing is said here.
//
// Reads a config.json of model_type "roberta", "xlm-roberta" or "camembert" and takes the weights
// it implies. Missing keys have the defaults of Hugging Face's configurations.
#include <memory>
#include <string_view>
#include <utility>

#include "engine/encoder/families/bert_layout.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {
namespace {

// Checkpoints of all three are saved with the first's prefix, or none.
constexpr std::string_view kRobertaPrefixes[] = {"", "roberta."};

}  // namespace

absl::StatusOr<FamilyModel> BuildRoberta(ConfigReader& config, WeightReader& weights) {
  const bool roberta = config.String("model_type", "") == "roberta";
  const PostNormConfig body = ReadBertKeys(config, {.vocabulary = roberta ? 50265 : 30522});
  // The table's rows up to the padding's are no token's positions, but the padding's own.
  const int64_t padding = config.Int("pad_token_id", 1, 0, body.words - 1);
  if (body.positions <= padding + 1) {
    config.Fail("max_position_embeddings", "leaves no position behind pad_token_id");
  }
  if (!config.status().ok()) return config.status();
  InputRules rules{
      .vocabulary = body.words,
      .types = body.types,
      .max_tokens = body.positions - padding - 1,
      .first_position = padding + 1,
      .padding = padding,
  };
  absl::StatusOr<std::unique_ptr<Body>> built =
      BuildPostNorm(body, BertNames(kRobertaPrefixes), weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kRobertaHeads};
}

}  // namespace castor::encoder
