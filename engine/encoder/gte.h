// GTE ("new"): the post-norm body with rotated queries and keys, or a table of positions, and a
// gated MLP without a bias before the gate.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "new" or "gte", in the keys of its own code or of transformers
// 5, and takes the weights it implies. Heads are not read.
absl::StatusOr<FamilyModel> BuildGte(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
