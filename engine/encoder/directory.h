// What a model directory says besides the transformer itself: which modules follow it, how its rows
// are pooled and projected, which prompts it knows and how long a text may be. No weights here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/dense.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

// What a SpladePooling module's config.json says; see SpladeConfig.
struct SpladeModule {
  bool sum = false;
  bool twice = false;
};

struct Directory {
  std::string transformer;  // the folder of config.json, weights and tokenizer
  // Whether there is a modules.json, or a pooling, which makes an embedding model of whatever class
  // the transformer was saved as.
  bool has_modules = false;
  bool pools = false;  // a Pooling module is among them
  Pooling pooling = Pooling::kMean;
  std::vector<DenseModule> dense;      // of pooled rows, or where nothing pools of all tokens'
  std::optional<SpladeModule> splade;  // behind a masked language model
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
