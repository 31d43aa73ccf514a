// ModernBERT: the pre-norm body with rotated queries and keys, where every n-th layer sees all
// tokens and the others a window.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "modernbert", in the keys of transformers 4 or of 5, and takes
// the weights it implies. Missing keys have the defaults of Hugging Face's ModernBertConfig. Heads
// are not read.
absl::StatusOr<FamilyModel> BuildModernBert(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
