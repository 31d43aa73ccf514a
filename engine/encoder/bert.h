// BERT: learned absolute positions, token types, post-norm layers with biases throughout.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/encoder/body.h"

namespace castor::encoder {

// Reads a config.json of model_type "bert" and takes the weights it implies. Missing keys have the
// defaults of Hugging Face's BertConfig. Heads (pooler, classifier, MLM) are not read.
absl::StatusOr<std::unique_ptr<Body>> BuildBert(ConfigReader& config, WeightReader& weights);

}  // namespace castor::encoder
