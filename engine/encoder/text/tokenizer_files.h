// The tokenizer of a model directory: which files make it, which of transformers' classes is in
// charge of them, and what tokenizer_config.json says besides.
//
// Functions without state; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/hf/tokenizer.h"

namespace castor::encoder {

struct LoadedTokenizer {
  std::unique_ptr<hf::Tokenizer> tokenizer;
  std::optional<int64_t> max_tokens;  // model_max_length
  bool cut_left = false;              // truncation_side
  bool type_ids = false;              // whether the model gets them: model_input_names
  bool chat_template = false;         // whether there is one
};

// What decides beside the tokenizer's own files.
struct TokenizerContext {
  std::string model_type;       // config.json's
  std::string tokenizer_class;  // likewise; may be empty
  bool lowercase = false;       // sentence-transformers' do_lower_case
};

// Reads tokenizer.json, or where there is none vocab.txt, or vocab.json and merges.txt; and
// tokenizer_config.json, special_tokens_map.json, added_tokens.json of `folder`. Errors name the
// file and the key.
absl::StatusOr<LoadedTokenizer> LoadTokenizer(const std::string& folder,
                                              const TokenizerContext& context);

}  // namespace castor::encoder
