// What a model directory says beside the transformer itself: which modules follow it, how its rows
// are pooled and how long a text may be. No tensors here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/request.h"

namespace castor::encoder {

struct Directory {
  std::string transformer;  // the folder of config.json, weights and tokenizer
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  // Of the pooled rows, as 1_Pooling/config.json has it; unset when it does not say.
  std::optional<int64_t> embedding_size;
  // From sentence_bert_config.json or, without one, tokenizer_config.json; unset: the model's own.
  std::optional<int64_t> max_tokens;
};

// Reads modules.json and the files beside it; all of them are optional. Modules and settings that
// would change the result and are not known are errors.
absl::StatusOr<Directory> ReadDirectory(const std::string& path);

}  // namespace castor::encoder
