// The families of models that can be loaded. A family is a function declared here, its file, and a
// row in families.cc. The file says what its config.json means, which blocks its body has and what
// its checkpoints call their weights. Nothing else knows the family's name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/heads/head_layout.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/network/transformer.h"
#include "engine/encoder/text/prepare.h"

namespace castor::encoder {

// A checkpoint as its family reads it.
struct FamilyModel {
  std::unique_ptr<Body> body;
  InputRules rules;
  const HeadLayout* heads = nullptr;  // of the classes with a head; static
};

struct Family {
  std::string_view model_type;  // as in config.json
  absl::StatusOr<FamilyModel> (*build)(ConfigReader& config, WeightReader& weights);
};

// Each reads the config.json of its types and takes the weights that it implies. Missing keys have
// the defaults of transformers' configuration, unless the family's file says otherwise.
absl::StatusOr<FamilyModel> BuildBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildCastorCast(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildDeberta(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildDistilBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildElectra(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildEuroBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildGemma1(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildGemma2(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildGemma3(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildGte(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildJinaBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildJinaV3(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildJinaV5(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildLlama(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildMistral(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildModernBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildMpnet(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildNomicBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildQwen2(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildQwen3(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildRoberta(ConfigReader& config, WeightReader& weights);

// ---- shared by several families

// Builds the model, if its config could be read and its weights are there.
absl::StatusOr<FamilyModel> BuildFamily(const ConfigReader& config, const TransformerConfig& body,
                                        const TransformerNames& names, WeightReader& weights,
                                        InputRules rules, const HeadLayout& heads);

// The values of missing keys; by default BertConfig's.
struct BertDefaults {
  int64_t vocabulary = 30522;
  int64_t hidden = 768;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t mlp_width = 3072;
  int64_t types = 2;
  double epsilon = 1e-12;
};

// Reads BERT's keys. position_embedding_type must be `positions`. Errors go to the reader.
TransformerConfig ReadBertKeys(ConfigReader& config, const BertDefaults& defaults,
                               std::string_view positions = "absolute");

// BERT's names of weights. `prefixes` must live as long as the result.
TransformerNames BertNames(std::span<const std::string_view> prefixes);

// ---- the table

// nullptr for an unknown type.
const Family* FindFamily(std::string_view model_type);

// "bert, ...": for messages.
std::string KnownFamilies();

}  // namespace castor::encoder
