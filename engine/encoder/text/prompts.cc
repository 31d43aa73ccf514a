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
constexpr std::string_view kAlwaysThere[] = {kQueryPrompt, "document"};

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

// The special token at the beginning of a prompt, if all others are text. `marked`: the tokens of
// the prompt where special tokens count.
absl::StatusOr<std::optional<Prompt::Marker>> FindMarker(const hf::Tokenizer& tokenizer,
                                                         const std::string& prompt,
                                                         const hf::EncodeOptions& plain,
                                                         const std::vector<int64_t>& marked) {
  hf::TokenOffsets offsets;
  const auto letter = TokensOf(tokenizer, "a", plain, &offsets);
  if (!letter.ok()) return letter.status();
  const size_t place = offsets.texts[0].begin;
  if (place >= marked.size()) return std::nullopt;
  const absl::StatusOr<std::string> token = tokenizer.TokenOf(marked[place]);
  if (!token.ok()) return token.status();
  if (token->empty() || !prompt.starts_with(*token)) return std::nullopt;
  auto rest = TokensOf(tokenizer, prompt.substr(token->size()), plain, nullptr);
  if (!rest.ok()) return rest.status();
  if (place > rest->size()) return std::nullopt;
  rest->insert(rest->begin() + static_cast<ptrdiff_t>(place), marked[place]);
  if (*rest != marked) return std::nullopt;
  return Prompt::Marker{.id = marked[place], .bytes = token->size(), .place = place};
}

// The same for a prefix that is one token of the vocabulary: as a whole, or its first word.
absl::StatusOr<std::optional<Prompt::Marker>> FindPrefix(const hf::Tokenizer& tokenizer,
                                                         const std::string& prompt,
                                                         const std::string& prefix) {
  hf::TokenOffsets offsets;
  const auto letter = TokensOf(tokenizer, "a", {}, &offsets);
  if (!letter.ok()) return letter.status();
  const std::string word = prefix.substr(0, prefix.find(' '));
  const auto found = FindTokens(tokenizer, {prefix, word});
  if (!found.ok()) return found.status();
  for (const std::string& token : {prefix, word}) {
    const auto id = found->find(token);
    if (id == found->end() || token.empty() || !prompt.starts_with(token)) continue;
    const size_t place = offsets.texts[0].begin;
    const auto ids = TokensOf(tokenizer, token, {.allow_special_tokens = true}, nullptr);
    if (!ids.ok()) return ids.status();
    if (ids->size() == letter->size() && (*ids)[place] == id->second) break;  // it is one anyway
    return Prompt::Marker{id->second, token.size(), place};
  }
  return std::nullopt;
}

absl::Status FinishPrompt(const hf::Tokenizer& tokenizer, int64_t max_tokens, bool include,
                          const std::vector<std::string>& prefixes, Prompt* prompt) {
  if (prompt->text.empty()) return absl::OkStatus();
  const hf::EncodeOptions plain{.max_tokens = max_tokens};
  const auto ids = TokensOf(tokenizer, prompt->text, plain, nullptr);
  if (!ids.ok()) return ids.status();
  for (const std::string& prefix : prefixes) {
    if (!prompt->text.starts_with(prefix)) continue;
    auto marker = FindPrefix(tokenizer, prompt->text, prefix);
    if (!marker.ok()) return marker.status();
    prompt->marker = *marker;
    if (prompt->marker.has_value()) return absl::OkStatus();
  }
  // A marker of the prompt would act only in requests that allow special tokens in their texts.
  const hf::EncodeOptions special{.max_tokens = max_tokens, .allow_special_tokens = true};
  const auto marked = TokensOf(tokenizer, prompt->text, special, nullptr);
  if (!marked.ok()) return marked.status();
  if (*marked != *ids) {
    const auto marker = FindMarker(tokenizer, prompt->text, plain, *marked);
    if (!marker.ok()) return marker.status();
    prompt->marker = *marker;
    if (!prompt->marker.has_value()) {
      return absl::InvalidArgumentError(
          "holds a special token of the tokenizer elsewhere than at its beginning, which is not "
          "supported");
    }
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

absl::StatusOr<std::map<std::string, int64_t>> FindTokens(const hf::Tokenizer& tokenizer,
                                                          const std::set<std::string>& tokens) {
  std::map<std::string, int64_t> found;
  for (int64_t id = 0; id < tokenizer.id_limit(); ++id) {
    absl::StatusOr<std::string> token = tokenizer.TokenOf(id);
    if (!token.ok()) return token.status();
    if (tokens.contains(*token)) found[*std::move(token)] = id;
  }
  return found;
}

absl::Status FinishPrompts(const hf::Tokenizer& tokenizer, int64_t max_tokens, bool include,
                           const std::vector<std::string>& prefixes, Prompts* prompts) {
  prompts->pooled = include;
  for (Prompt& prompt : prompts->all) {
    const absl::Status status = FinishPrompt(tokenizer, max_tokens, include, prefixes, &prompt);
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

absl::StatusOr<bool> EncodePrompted(const hf::Tokenizer& tokenizer, const Prompt* prompt,
                                    std::string_view prompt_text, std::string_view text,
                                    std::optional<std::string_view> pair, hf::EncodeOptions options,
                                    std::string* joined, std::vector<int64_t>* ids,
                                    std::vector<int64_t>* type_ids, hf::TokenOffsets* offsets) {
  if (!prompt_text.empty()) text = joined->assign(prompt_text).append(text);
  if (prompt == nullptr || !prompt->marker.has_value()) {
    return tokenizer.Encode(text, pair, options, ids, type_ids, offsets);
  }
  const Prompt::Marker& marker = *prompt->marker;
  const size_t place = options.add_special_tokens ? marker.place : 0;
  const size_t at = ids->size() + place;
  --options.max_tokens;
  const auto cut =
      tokenizer.Encode(text.substr(marker.bytes), pair, options, ids, type_ids, offsets);
  if (!cut.ok()) return cut;
  for (auto& [values, value] : {std::pair(ids, marker.id), std::pair(type_ids, int64_t{0})}) {
    values->insert(values->begin() + static_cast<ptrdiff_t>(at), value);
  }
  if (offsets == nullptr) return cut;
  for (size_t i = offsets->texts[0].begin; i < offsets->texts[0].end; ++i) {
    offsets->bytes[i].begin += marker.bytes;
    offsets->bytes[i].end += marker.bytes;
  }
  offsets->bytes.insert(offsets->bytes.begin() + static_cast<ptrdiff_t>(place),
                        hf::TokenOffsets::Bytes{0, marker.bytes});
  for (hf::TokenOffsets::Text& part : offsets->texts) {
    part.begin += part.end > 0 ? 1 : 0;
    part.end += part.end > 0 ? 1 : 0;
  }
  hf::TokenOffsets::Text& first = offsets->texts[0];
  if (first.cut != SIZE_MAX) first.cut += marker.bytes;
  if (first.head > 0) first.head += marker.bytes;
  return cut;
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
  if (!request.task.empty() && !request.prompt_name.has_value()) {
    if (const Prompt* const its = FindPrompt(request.task, prompts)) return its;
  }
  return FindPrompt(request.prompt_name.value_or(prompts.default_name), prompts);
}

bool LooksUp(const EncodeRequest& request, const ModelInfo& info) {
  const std::string name = request.prompt_name.value_or("");
  const std::string& route = request.task.empty() ? name : request.task;
  if (std::ranges::count(info.tasks, route) == 0) return info.lookup_by_default;
  return route == info.lookup_task;
}

std::string_view PromptTextOf(const EncodeRequest& request, const Prompts& prompts, size_t text) {
  if (request.prompt.has_value()) return *request.prompt;
  const Prompt* const prompt = PromptOf(request, prompts, text);
  return prompt == nullptr ? std::string_view() : prompt->text;
}

}  // namespace castor::encoder
