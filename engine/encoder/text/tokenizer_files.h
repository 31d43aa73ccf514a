// The tokenizer of a model directory: its files, the transformers class that reads them, and the
// other settings of tokenizer_config.json.
//
// Functions without state; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/hf/tokenizer.h"

namespace castor::encoder {

struct LoadedTokenizer {
  std::unique_ptr<hf::Tokenizer> tokenizer;
  std::optional<int64_t> max_tokens;  // model_max_length
  bool cut_left = false;              // truncation_side
  bool type_ids = false;              // the model gets type ids: model_input_names
  bool chat_template = false;         // the directory has one
  std::string chat_template_text;     // tokenizer_config.json's; empty: it is elsewhere, or several
  std::map<std::string, std::string, std::less<>>
      special_tokens;                // tokenizer_config.json's, by key
  bool pads_left = false;            // padding_side
  std::vector<std::string> fillers;  // candidates for padding of queries, the best first
};

// Settings from outside the tokenizer's own files.
struct TokenizerContext {
  std::string model_type;       // config.json's
  std::string tokenizer_class;  // likewise; may be empty
  bool lowercase = false;       // sentence-transformers' do_lower_case
  bool alone = false;           // tokenizer.json is read alone, and its truncation counts
};

// Reads tokenizer.json of `folder`, or without it vocab.txt, or vocab.json and merges.txt; and
// reads tokenizer_config.json, special_tokens_map.json and added_tokens.json. Errors name the file
// and the key.
absl::StatusOr<LoadedTokenizer> LoadTokenizer(const std::string& folder,
                                              const TokenizerContext& context);

}  // namespace castor::encoder
