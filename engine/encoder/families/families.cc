#include "engine/encoder/families/families.h"

#include <utility>

namespace castor::encoder {
namespace {

constexpr Family kFamilies[] = {
    {"bert", BuildBert},
    {"camembert", BuildRoberta},
    {"castor_cast", BuildCastorCast},
    {"deberta-v2", BuildDeberta},
    {"distilbert", BuildDistilBert},
    {"electra", BuildElectra},
    {"eurobert", BuildEuroBert},
    {"gemma", BuildGemma1},
    {"gemma2", BuildGemma2},
    {"gemma3_text", BuildGemma3},
    {"gte", BuildGte},
    {"jina_embeddings_v3", BuildJinaV3},
    {"jina_embeddings_v5", BuildJinaV5},
    {"llama", BuildLlama},
    {"llama_bidirec", BuildLlama},
    {"mistral", BuildMistral},
    {"modernbert", BuildModernBert},
    {"mpnet", BuildMpnet},
    {"new", BuildGte},
    {"nomic_bert", BuildNomicBert},
    {"qwen2", BuildQwen2},
    {"qwen3", BuildQwen3},
    {"roberta", BuildRoberta},
    {"xlm-roberta", BuildRoberta},
};

}  // namespace

absl::StatusOr<FamilyModel> BuildFamily(const ConfigReader& config, const TransformerConfig& body,
                                        const TransformerNames& names, WeightReader& weights,
                                        InputRules rules, const HeadLayout& heads) {
  if (!config.status().ok()) return config.status();
  absl::StatusOr<std::unique_ptr<Body>> built = BuildTransformer(body, names, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &heads};
}

const Family* FindFamily(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string KnownFamilies() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.model_type;
  }
  return names;
}

}  // namespace castor::encoder
