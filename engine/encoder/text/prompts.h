// Prompts: texts that a model puts before others, by name, as sentence-transformers does.
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

// Of config_sentence_transformers.json. Errors go to the reader.
Prompts ReadPrompts(ConfigReader& config);

// Limits the texts that have the prompt `name`, which is added if it is not there.
void LimitPrompt(const std::string& name, std::optional<int64_t> max_tokens, Prompts* prompts);

// Refuses prompts that a model of `max_tokens` cannot put before texts, and counts the tokens that
// are left out of pooling where the model's `include_prompt` is false. Errors name no file.
absl::Status FinishPrompts(const hf::Tokenizer& tokenizer, int64_t max_tokens, bool include,
                           Prompts* prompts);

// The tokens of a prompt that pooling leaves out, as sentence-transformers counts them: all of it
// by itself, but for one special token at the end. An error if it leaves no room for text.
absl::StatusOr<int32_t> CountLeftOut(const hf::Tokenizer& tokenizer, const std::string& prompt,
                                     int64_t max_tokens);

// INVALID_FIELD if the request names a prompt that is not there, or cannot have one.
absl::Status CheckPrompt(const EncodeRequest& request, const Prompts& prompts);

// The model's prompt that goes before one of the request's texts, all alike unless the first is a
// query; null: none, or a free one. Requires that it was checked.
const Prompt* PromptOf(const EncodeRequest& request, const Prompts& prompts, size_t text = 0);

// What goes before the text, likewise.
std::string_view PromptTextOf(const EncodeRequest& request, const Prompts& prompts,
                              size_t text = 0);

}  // namespace castor::encoder
