// Prompts: texts that a model puts before others, by name, as sentence-transformers does.
//
// Functions without state; any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/hf/tokenizer.h"
#include "engine/request.h"

namespace castor::encoder {

// Reads `prompts` and `default_prompt_name` of config_sentence_transformers.json; none if there is
// no such file.
absl::StatusOr<Prompts> ReadPrompts(const std::string& file);

// Refuses prompts that a model of `max_tokens` cannot put before texts, and counts the tokens that
// are left out of pooling where the model's `include_prompt` is false. Errors name no file.
absl::Status FinishPrompts(const hf::Tokenizer& tokenizer, int64_t max_tokens, bool include,
                           Prompts* prompts);

// INVALID_FIELD if the request names a prompt that is not there, or cannot have one.
absl::Status CheckPrompt(const EncodeRequest& request, const Prompts& prompts);

// The prompt that goes before the request's texts; null: none. Requires that it was checked.
const Prompt* PromptOf(const EncodeRequest& request, const Prompts& prompts);

}  // namespace castor::encoder
