// RoBERTa, XLM-RoBERTa and CamemBERT: BERT's layers, with positions that begin behind the padding
// token's id. They differ in their tokenizers, of which nothing is said here.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "roberta", "xlm-roberta" or "camembert" and takes the weights
// it implies. Missing keys have the defaults of Hugging Face's configurations. Heads are not read.
absl::StatusOr<FamilyModel> BuildRoberta(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
