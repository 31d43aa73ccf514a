// Encoders that were trained with CAST (attention/cast.md): the pre-norm body with surrogate tokens
// and a gate in each layer, and positions added to the word embeddings. A format of our own, for
// models that are trained from scratch: that page has its keys and the names of its weights,
// tests/cast/ trains one.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "castor_cast" and takes the weights it implies. Keys that are
// not known are errors, and so are sizes that are missing. Heads are not read.
absl::StatusOr<FamilyModel> BuildCastorCast(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
