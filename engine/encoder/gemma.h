// Gemma 3 that looks both ways, as EmbeddingGemma: the pre-norm body with a norm also of what
// attention and the MLP return, norms over each query and key, rotations, a gated MLP, and layers
// with a window between those that see all tokens. Several heads may share keys and values.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "gemma3_text", in the keys of transformers 4 or of 5, and takes
// the weights it implies. Missing keys have the defaults of Hugging Face's Gemma3TextConfig, whose
// use_bidirectional_attention must be true. Heads are not read.
absl::StatusOr<FamilyModel> BuildGemma(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
