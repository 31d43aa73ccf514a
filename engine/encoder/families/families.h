// The families of models that can be loaded. A family is a file (bert.cc), a function here, and a
// row in families.cc. The file says what its config.json means, what blocks its body is made of and
// where its checkpoints keep their weights. Nothing else knows its name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/heads/head_layout.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/text/input_rules.h"

namespace castor::encoder {

// What a family makes of a checkpoint.
struct FamilyModel {
  std::unique_ptr<Body> body;
  InputRules rules;
  // Where classes with a head keep their weights; null if none of them is served. Static.
  const HeadLayout* heads = nullptr;
};

struct Family {
  std::string_view model_type;  // as in config.json
  absl::StatusOr<FamilyModel> (*build)(ConfigReader& config, WeightReader& weights);
};

// Each reads the config.json of its types and takes the weights that it implies. Missing keys have
// the defaults of Hugging Face's configuration, unless the family's file says otherwise.
absl::StatusOr<FamilyModel> BuildBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildCastorCast(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildDeberta(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildDistilBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildElectra(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildEuroBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildGemma(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildGte(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildJinaV3(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildMistral(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildModernBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildNomicBert(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildQwen2(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildQwen3(ConfigReader& config, WeightReader& weights);
absl::StatusOr<FamilyModel> BuildRoberta(ConfigReader& config, WeightReader& weights);

// nullptr for an unknown type.
const Family* FindFamily(std::string_view model_type);

// "bert, ...": for messages.
std::string KnownFamilies();

}  // namespace castor::encoder
