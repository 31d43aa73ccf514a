#include "engine/encoder/text/prompts.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error.h"

namespace castor::encoder {
namespace {

const Prompt* FindPrompt(std::string_view name, const Prompts& prompts) {
  const auto found = std::find_if(prompts.all.begin(), prompts.all.end(),
                                  [&](const Prompt& prompt) { return prompt.name == name; });
  return found == prompts.all.end() ? nullptr : &*found;
}

// Every sentence-transformers model has these prompts; they are empty unless a file sets them.
constexpr std::string_view kAlwaysThere[] = {"query", "document"};

constexpr std::string_view kBeforeTexts =
    "needs texts: a prompt cannot precede token ids or embeddings";

bool IsKnown(std::string_view name, const Prompts& prompts) {
  return FindPrompt(name, prompts) != nullptr ||
         std::find(std::begin(kAlwaysThere), std::end(kAlwaysThere), name) !=
             std::end(kAlwaysThere);
}

std::string PromptNames(const Prompts& prompts) {
  if (prompts.all.empty()) return "this model has none";
  std::string names;
  for (const Prompt& prompt : prompts.all) {
    absl::StrAppend(&names, names.empty() ? "known are " : ", ", "\"", prompt.name, "\"");
  }
  return names;
}

absl::StatusOr<std::vector<int64_t>> TokensOf(const hf::Tokenizer& tokenizer,
                                              const std::string& text,
                                              const hf::EncodeOptions& options,
                                              hf::TokenOffsets* offsets) {
  std::vector<int64_t> ids, type_ids;
  const absl::StatusOr<bool> cut =
      tokenizer.Encode(text, std::nullopt, options, &ids, &type_ids, offsets);
  if (!cut.ok()) return cut.status();
  if (*cut) {
    return absl::InvalidArgumentError(
        absl::StrCat("leaves no room for text: it is longer than ", options.max_tokens, " tokens"));
  }
  return ids;
}

absl::Status FinishPrompt(const hf::Tokenizer& tokenizer, int64_t max_tokens, bool include,
                          Prompt* prompt) {
  if (prompt->text.empty()) return absl::OkStatus();
  const hf::EncodeOptions plain{.max_tokens = max_tokens};
  const auto ids = TokensOf(tokenizer, prompt->text, plain, nullptr);
  if (!ids.ok()) return ids.status();
  // A marker of the prompt would act only in requests that allow special tokens in their texts.
  const hf::EncodeOptions special{.max_tokens = max_tokens, .allow_special_tokens = true};
  const auto marked = TokensOf(tokenizer, prompt->text, special, nullptr);
  if (!marked.ok()) return marked.status();
  if (*marked != *ids) {
    return absl::InvalidArgumentError(
        "holds a special token of the tokenizer, which is not supported");
  }
  if (include) return absl::OkStatus();
  const absl::StatusOr<int32_t> left_out = CountLeftOut(tokenizer, prompt->text, max_tokens);
  if (left_out.ok()) prompt->left_out = *left_out;
  return left_out.status();
}

}  // namespace

Prompts ReadPrompts(ConfigReader& config) {
  std::map<std::string, std::string> texts;
  for (auto& [name, text] : config.StringsByName("prompts")) {
    if (name.empty()) config.Fail("prompts", "has a prompt with an empty name");
    texts[name] = std::move(text);
  }
  if (config.IsNull("prompts")) config.Fail("prompts", "must not be null");
  // PyLate's own files have these prefixes, which precede the prompts.
  for (const std::string_view name : kAlwaysThere) {
    const std::string prefix = config.String(absl::StrCat(std::string(name), "_prefix"), "");
    if (prefix.empty()) continue;
    std::string& text = texts[std::string(name)];
    if (!text.starts_with(prefix)) text.insert(0, prefix);
  }
  Prompts prompts;
  for (auto& [name, text] : texts) prompts.all.push_back({.name = name, .text = std::move(text)});
  prompts.default_name = config.String("default_prompt_name", "");
  if (config.status().ok() && !prompts.default_name.empty() &&
      !IsKnown(prompts.default_name, prompts)) {
    config.Fail("default_prompt_name",
                absl::StrCat("\"", prompts.default_name, "\" is not among `prompts`"));
  }
  return prompts;
}

void LimitPrompt(const std::string& name, std::optional<int64_t> max_tokens, Prompts* prompts) {
  if (!max_tokens.has_value()) return;
  const auto at = std::lower_bound(
      prompts->all.begin(), prompts->all.end(), name,
      [](const Prompt& prompt, const std::string& value) { return prompt.name < value; });
  const bool there = at != prompts->all.end() && at->name == name;
  (there ? at : prompts->all.insert(at, Prompt{.name = name, .text = ""}))->max_tokens =
      *max_tokens;
}

absl::Status FinishPrompts(const hf::Tokenizer& tokenizer, int64_t max_tokens, bool include,
                           Prompts* prompts) {
  prompts->pooled = include;
  for (Prompt& prompt : prompts->all) {
    const absl::Status status = FinishPrompt(tokenizer, max_tokens, include, &prompt);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("prompts.", prompt.name, ": ",
                                                      std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> CountLeftOut(const hf::Tokenizer& tokenizer, const std::string& prompt,
                                     int64_t max_tokens) {
  hf::TokenOffsets offsets;
  const auto ids = TokensOf(tokenizer, prompt, {.max_tokens = max_tokens}, &offsets);
  if (!ids.ok()) return ids.status();
  const bool ends_special = offsets.texts[0].end < ids->size();
  return static_cast<int32_t>(ids->size()) - (ends_special ? 1 : 0);
}

absl::Status CheckPrompt(const EncodeRequest& request, const Prompts& prompts) {
  if (request.prompt.has_value()) {
    if (request.prompt_name.has_value()) {
      return InvalidField("prompt_name", "cannot be combined with `prompt`");
    }
    if (std::holds_alternative<TextInput>(request.input)) return absl::OkStatus();
    return InvalidField("prompt", std::string(kBeforeTexts));
  }
  if (!request.prompt_name.has_value() || request.prompt_name->empty()) return absl::OkStatus();
  if (!std::holds_alternative<TextInput>(request.input)) {
    return InvalidField("prompt_name", std::string(kBeforeTexts));
  }
  if (!IsKnown(*request.prompt_name, prompts)) {
    return InvalidField("prompt_name", absl::StrCat("is not a prompt of this model; ",  //
                                                    PromptNames(prompts)));
  }
  return absl::OkStatus();
}

const Prompt* PromptOf(const EncodeRequest& request, const Prompts& prompts, size_t text) {
  if (request.output == EncodeOutput::kMaxSim)
    return FindPrompt(kAlwaysThere[text == 0 ? 0 : 1], prompts);
  if (!std::holds_alternative<TextInput>(request.input) || request.prompt.has_value()) {
    return nullptr;
  }
  return FindPrompt(request.prompt_name.value_or(prompts.default_name), prompts);
}

std::string_view PromptTextOf(const EncodeRequest& request, const Prompts& prompts, size_t text) {
  if (request.prompt.has_value()) return *request.prompt;
  const Prompt* const prompt = PromptOf(request, prompts, text);
  return prompt == nullptr ? std::string_view() : prompt->text;
}

}  // namespace castor::encoder
