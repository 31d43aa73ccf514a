// BERT: the post-norm body with token types, positions from 0. With ALiBi it is another family
// (jina_bert.h) under the same name.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "bert" and takes the weights it implies. Missing keys have the
// defaults of Hugging Face's BertConfig. Heads (pooler, classifier, MLM) are not read.
absl::StatusOr<FamilyModel> BuildBert(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
