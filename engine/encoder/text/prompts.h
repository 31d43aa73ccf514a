// Prompts: named texts that a model puts before a request's texts, as sentence-transformers does.
//
// Functions without state; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/engine.h"
#include "engine/hf/tokenizer.h"
#include "engine/request.h"

namespace castor::encoder {

// Reads the prompts of config_sentence_transformers.json. Errors go to the reader.
Prompts ReadPrompts(ConfigReader& config);

// Limits the texts that have the prompt `name`. Adds the prompt if the model lacks it.
void LimitPrompt(const std::string& name, std::optional<int64_t> max_tokens, Prompts* prompts);

// Refuses prompts that a model of `max_tokens` cannot put before texts, and counts the tokens that
// are left out of pooling where the model's `include_prompt` is false. Errors name no file.
absl::Status FinishPrompts(const hf::Tokenizer& tokenizer, int64_t max_tokens, bool include,
                           Prompts* prompts);

// The number of a prompt's tokens that pooling leaves out, as sentence-transformers counts them:
// the tokens of the prompt alone, without one special token at the end. An error if the prompt
// leaves no room for text.
absl::StatusOr<int32_t> CountLeftOut(const hf::Tokenizer& tokenizer, const std::string& prompt,
                                     int64_t max_tokens);

// INVALID_FIELD if the request names an unknown prompt, or cannot have one.
absl::Status CheckPrompt(const EncodeRequest& request, const Prompts& prompts);

// The model's prompt before the request's text of this index; null: none, or one that the request
// brings. All texts have the same prompt, unless the first is a query. Requires CheckPrompt.
const Prompt* PromptOf(const EncodeRequest& request, const Prompts& prompts, size_t text = 0);

// The prompt's text, the model's or the request's own, likewise.
std::string_view PromptTextOf(const EncodeRequest& request, const Prompts& prompts,
                              size_t text = 0);

}  // namespace castor::encoder
