// Prompts: named texts that a model puts before a request's texts, as sentence-transformers does.
//
// Functions without state; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/engine.h"
#include "engine/hf/tokenizer.h"
#include "engine/request.h"

namespace castor::encoder {

// The prompt of queries.
inline constexpr std::string_view kQueryPrompt = "query";

// Reads the prompts of config_sentence_transformers.json. Errors go to the reader.
Prompts ReadPrompts(ConfigReader& config);

// Limits the texts that have the prompt `name`. Adds the prompt if the model lacks it.
void LimitPrompt(const std::string& name, std::optional<int64_t> max_tokens, Prompts* prompts);

// Refuses prompts that a model of `max_tokens` cannot put before texts, and counts the tokens that
// are left out of pooling where the model's `include_prompt` is false. Errors name no file.
// `prefixes`: texts that begin prompts and are one token if the vocabulary has them, or their first
// word, whatever tokenizer.json makes of them.
absl::Status FinishPrompts(const hf::Tokenizer& tokenizer, int64_t max_tokens, bool include,
                           const std::vector<std::string>& prefixes, Prompts* prompts);

// The id of each of these entries of the vocabulary that it has.
absl::StatusOr<std::map<std::string, int64_t>> FindTokens(const hf::Tokenizer& tokenizer,
                                                          const std::set<std::string>& tokens);

// The number of a prompt's tokens that pooling leaves out, as sentence-transformers counts them:
// the tokens of the prompt alone, without one special token at the end. An error if the prompt
// leaves no room for text.
absl::StatusOr<int32_t> CountLeftOut(const hf::Tokenizer& tokenizer, const std::string& prompt,
                                     int64_t max_tokens);

// Encodes the prompt's text and `text` as the tokenizer's Encode does. `prompt`: the model's, or
// null. `joined` keeps the texts while offsets are in use.
absl::StatusOr<bool> EncodePrompted(const hf::Tokenizer& tokenizer, const Prompt* prompt,
                                    std::string_view prompt_text, std::string_view text,
                                    std::optional<std::string_view> pair, hf::EncodeOptions options,
                                    std::string* joined, std::vector<int64_t>* ids,
                                    std::vector<int64_t>* type_ids, hf::TokenOffsets* offsets);

// INVALID_FIELD if the request names an unknown prompt, or cannot have one.
absl::Status CheckPrompt(const EncodeRequest& request, const Prompts& prompts);

// The model's prompt before the request's text of this index; null: none, or one that the request
// brings. By default it is that of the request's task, if the model has one of this name. All texts
// have the same prompt, unless the first is a query. Requires CheckPrompt.
const Prompt* PromptOf(const EncodeRequest& request, const Prompts& prompts, size_t text = 0);

// Whether the model's table answers the request: the route of its task, else of its prompt's name,
// else the default one.
bool LooksUp(const EncodeRequest& request, const ModelInfo& info);

// The prompt's text, the model's or the request's own, likewise.
std::string_view PromptTextOf(const EncodeRequest& request, const Prompts& prompts,
                              size_t text = 0);

}  // namespace castor::encoder
