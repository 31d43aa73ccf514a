// Nomic's BERT, dense: the post-norm body with rotated queries and keys, which may stretch with a
// text's length, and a gated MLP; most checkpoints have no biases.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "nomic_bert", in the keys of its own code, which are GPT-2's
// and some more, or of transformers 5, and takes the weights it implies. Mixtures of experts are
// refused. Heads are not read.
//
// Where rotations stretch, a text's depend on its own length. Its own code takes the longest text
// of all batches before, so there a text's rows depend on the others.
absl::StatusOr<FamilyModel> BuildNomicBert(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
