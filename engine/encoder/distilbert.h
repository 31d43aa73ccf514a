// DistilBERT: the post-norm body without token types.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "distilbert" and takes the weights it implies. Missing keys
// have the defaults of Hugging Face's DistilBertConfig. Sinusoidal positions are in the checkpoint
// like learned ones. Heads are not read.
absl::StatusOr<FamilyModel> BuildDistilBert(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
