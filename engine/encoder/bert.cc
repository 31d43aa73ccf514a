#include "engine/encoder/bert.h"

#include <memory>
#include <string_view>
#include <utility>

#include "engine/encoder/bert_layout.h"
#include "engine/encoder/post_norm.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kBertPrefixes[] = {"", "bert."};

}  // namespace

absl::StatusOr<FamilyModel> BuildBert(ConfigReader& config, WeightReader& weights) {
  const PostNormConfig body = ReadBertKeys(config, /*vocabulary=*/30522);
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
