// jina-embeddings-v3 without its adapters: XLM-RoBERTa's layers, with rotated queries and keys in
// place of a table of positions.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "jina_embeddings_v3", as transformers 5 has it, and takes the
// weights it implies. Adapters are refused. Heads are not read.
absl::StatusOr<FamilyModel> BuildJinaV3(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
