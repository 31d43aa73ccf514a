// BERT: the post-norm body with token types, positions from 0. With ALiBi it is another family
// (jina_bert.h) under the same name.
//
// Reads a config.json of model_type "bert" and takes the weights it implies. Missing keys have the
// defaults of Hugging Face's BertConfig.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/encoder/families/bert_layout.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/families/jina_bert.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kBertPrefixes[] = {"", "bert."};

}  // namespace

absl::StatusOr<FamilyModel> BuildBert(ConfigReader& config, WeightReader& weights) {
  if (config.String("position_embedding_type", "absolute") == "alibi") {
    return BuildJinaBert(config, weights);
  }
  const PostNormConfig body = ReadBertKeys(config, {});
  // Code of others, which biases scores whatever the positions are.
  const std::string mlp = config.String("feed_forward_type", "original");
  if (mlp != "original") {
    config.Fail("feed_forward_type",
                "\"" + mlp + "\" needs a position_embedding_type of \"alibi\"");
  }
  if (!config.status().ok()) return config.status();
  InputRules rules{
      .vocabulary = body.words,
      .types = body.types,
      .max_tokens = body.positions,
  };
  absl::StatusOr<std::unique_ptr<Body>> built =
      BuildPostNorm(body, BertNames(kBertPrefixes), weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kBertHeads};
}

}  // namespace castor::encoder
