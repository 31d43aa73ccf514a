// EuroBERT: the pre-norm body with RMSNorms, rotated queries and keys, and a gated MLP; layers as
// language models have them, that see all tokens. Several heads may share keys and values.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "eurobert", in the keys of its own code or of transformers 5,
// and takes the weights it implies. Heads are not read.
absl::StatusOr<FamilyModel> BuildEuroBert(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
