// What a model directory says besides the transformer itself: which modules follow it, how its rows
// are pooled, which prompts it knows and how long a text may be. No tensors here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

struct Directory {
  std::string transformer;  // the folder of config.json, weights and tokenizer
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  bool include_prompt = true;  // whether a prompt's tokens are pooled
  Prompts prompts;             // as the files have them
  // Of the pooled rows, from 1_Pooling/config.json; unset when it does not say.
  std::optional<int64_t> embedding_size;
  // From sentence_bert_config.json or, if it sets none, tokenizer_config.json; unset: the model's
  // own.
  std::optional<int64_t> max_tokens;
};

// Reads modules.json and the files beside it; all of them are optional. Unknown modules, and
// unsupported settings that would change the result, are errors.
absl::StatusOr<Directory> ReadDirectory(const std::string& path);

}  // namespace castor::encoder
