// TextModel's tokenizing and detokenizing for their own sake, without a pass through the model.
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error.h"
#include "engine/encoder/text/prompts.h"
#include "engine/encoder/text/text_model.h"

namespace castor::encoder {
namespace {

constexpr int64_t kAnyLength = int64_t{1} << 40;

int64_t LimitOf(const EncodeRequest& request, const InputRules& rules, const Prompts& prompts) {
  return request.truncate ? MaxTokens(request, rules, PromptOf(request, prompts)) : kAnyLength;
}

// The tokens that a TokenizeOnly is charged for. EstimateTokens says why a byte makes at most 2
// tokens. The exception is U+FDFA, a sentence in one character, which makes 18.
int64_t MostTokens(const EncodeRequest& request, const InputRules& rules, const Prompts& prompts) {
  const auto& input = std::get<TextInput>(request.input);
  const int64_t limit = LimitOf(request, rules, prompts);
  const auto prompt = static_cast<int64_t>(PromptTextOf(request, prompts).size());
  int64_t most = 0;
  for (size_t i = 0; i < input.texts.size(); ++i) {
    most += std::min(limit, 2 * (prompt + BytesOf(input, i)) + 32);
  }
  return most;
}

// For each byte offset of a text, its end included: how many characters come before it.
std::vector<uint32_t> CharactersBefore(std::string_view text) {
  std::vector<uint32_t> before(text.size() + 1);
  uint32_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    before[i] = characters;
    const bool last = i + 1 == text.size() || (static_cast<uint8_t>(text[i + 1]) & 0xC0) != 0x80;
    if (last) ++characters;
  }
  before[text.size()] = characters;
  return before;
}

// Describes the tokens that were appended to out->ids.
absl::Status Describe(const hf::Tokenizer& tokenizer, std::span<const std::string_view> texts,
                      const hf::TokenOffsets& offsets, bool return_tokens, Tokenized* out) {
  const size_t first = out->special.size(), tokens = offsets.bytes.size();
  out->special.resize(first + tokens, true);
  out->pair.resize(first + tokens, false);
  out->bytes.resize(first + tokens);
  out->characters.resize(first + tokens);
  for (size_t t = 0; t < texts.size(); ++t) {
    const std::vector<uint32_t> before = CharactersBefore(texts[t]);
    for (size_t i = offsets.texts[t].begin; i < offsets.texts[t].end; ++i) {
      const auto [begin, end] = offsets.bytes[i];
      out->special[first + i] = false;
      out->pair[first + i] = t == 1;
      out->bytes[first + i] = {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
      out->characters[first + i] = {before[begin], before[end]};
    }
  }
  out->lengths.push_back(static_cast<int64_t>(tokens));
  if (!return_tokens) return absl::OkStatus();
  for (size_t i = first; i < out->ids.size(); ++i) {
    absl::StatusOr<std::string> token = tokenizer.TokenOf(out->ids[i]);
    if (!token.ok()) return token.status();
    out->tokens.push_back(*std::move(token));
  }
  return absl::OkStatus();
}

absl::Status TokenizeOne(const EncodeRequest& request, const hf::Tokenizer& tokenizer,
                         const Prompt* named, std::string_view prompt,
                         const hf::EncodeOptions& options, Tokenized* out) {
  const auto& input = std::get<TextInput>(request.input);
  const auto& how = std::get<TokenizeOnly>(request.instead);
  const size_t i = out->lengths.size();
  std::string prompted;
  std::vector<std::string_view> texts = {input.texts[i]};
  if (!input.pairs.empty()) texts.push_back(input.pairs[i]);
  hf::TokenOffsets offsets;
  const auto cut = EncodePrompted(tokenizer, named, prompt, texts[0],
                                  texts.size() > 1 ? std::optional(texts[1]) : std::nullopt,
                                  options, &prompted, &out->ids, &out->type_ids, &offsets);
  if (!prompt.empty()) texts[0] = prompted;
  if (cut.status().code() == absl::StatusCode::kInvalidArgument) {
    return InvalidField(FieldAt("texts.texts", i), std::string(cut.status().message()));
  }
  if (!cut.ok()) return cut.status();
  out->truncated.push_back(*cut);
  return Describe(tokenizer, texts, offsets, how.return_tokens, out);
}

absl::StatusOr<bool> DetokenizeSome(const EncodeRequest& request, const hf::Tokenizer& tokenizer,
                                    const Slice& slice, Tokenized* out) {
  const auto& input = std::get<TokenInput>(request.input);
  const bool skip = std::get<DetokenizeOnly>(request.instead).skip_special_tokens;
  const std::vector<int64_t> lengths =
      LengthsOf(input.lengths, static_cast<int64_t>(input.ids.size()));
  int64_t bytes = 0;
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); at += lengths[i++]) {
    if (i < out->texts.size()) continue;  // done before
    if (bytes >= slice.bytes) return false;
    if (slice.stop && slice.stop()) return MakeError(Reason::kCancelled, "decoding was stopped");
    absl::StatusOr<std::string> text =
        tokenizer.Decode(std::span(input.ids).subspan(at, lengths[i]), skip);
    if (!text.ok()) return text.status();
    bytes += lengths[i] * static_cast<int64_t>(sizeof(int64_t));
    out->texts.push_back(*std::move(text));
  }
  return true;
}

}  // namespace

int64_t TextModel::EstimateTokenizedBytes(const EncodeRequest& request) const {
  if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    // Two copies of the ids, and each id's text.
    const int64_t each =
        2 * static_cast<int64_t>(sizeof(int64_t)) + tokenizer_->longest_token() + 1;
    return static_cast<int64_t>(tokens->ids.size()) * each +
           static_cast<int64_t>(tokens->lengths.size() * sizeof(std::string));
  }
  const auto& input = std::get<TextInput>(request.input);
  int64_t longest = 0;
  for (size_t i = 0; i < input.texts.size(); ++i) longest = std::max(longest, BytesOf(input, i));
  longest += static_cast<int64_t>(PromptTextOf(request, info_.prompts).size());
  // A vocabulary spells a single byte with at most 6 characters: <0x0A>.
  constexpr int64_t kName = sizeof(std::string) + 6;
  const bool named = std::get<TokenizeOnly>(request.instead).return_tokens;
  return MostTokens(request, rules(), info_.prompts) *
             (Tokenized::kBytesPerToken + (named ? kName : 0)) +
         longest * static_cast<int64_t>(sizeof(uint32_t));
}

absl::StatusOr<bool> TextModel::TokenizeSome(const EncodeRequest& request, const Slice& slice,
                                             Tokenized* out) const {
  const auto* how = std::get_if<TokenizeOnly>(&request.instead);
  if (how == nullptr) return DetokenizeSome(request, *tokenizer_, slice, out);
  const auto& input = std::get<TextInput>(request.input);
  // Around pairs a prompt has its place within the template, which is not tokenized here.
  const Prompt* const named = pairs_.has_value() ? nullptr : PromptOf(request, info_.prompts);
  const std::string_view prompt =
      pairs_.has_value() ? std::string_view() : PromptTextOf(request, info_.prompts);
  const hf::EncodeOptions options{.max_tokens = LimitOf(request, rules(), info_.prompts),
                                  .cut_left = CutsLeft(request, rules()),
                                  .allow_special_tokens = input.allow_special_tokens,
                                  .add_special_tokens = how->add_special_tokens,
                                  .trim_offsets = false,
                                  .stop = slice.stop};
  const int64_t marker = named != nullptr && named->marker.has_value() ? 1 : 0;
  const int64_t added =
      marker + (how->add_special_tokens ? tokenizer_->added_tokens(!input.pairs.empty()) : 0);
  if (options.max_tokens <= added) {
    return InvalidField("max_tokens",
                        absl::StrCat("leaves no room for text after ", added, " special tokens"));
  }
  const int64_t most = MostTokens(request, rules(), info_.prompts);
  int64_t bytes = 0;
  while (out->lengths.size() < input.texts.size()) {
    if (bytes >= slice.bytes) return false;
    if (slice.stop && slice.stop()) return MakeError(Reason::kCancelled, "tokenizing was stopped");
    bytes += BytesOf(input, out->lengths.size()) + static_cast<int64_t>(prompt.size());
    absl::Status status = TokenizeOne(request, *tokenizer_, named, prompt, options, out);
    if (!status.ok()) return status;
    if (std::ssize(out->ids) > most) {
      return InvalidField(FieldAt("texts.texts", out->lengths.size() - 1),
                          "makes more than 2 tokens per byte");
    }
  }
  return true;
}

}  // namespace castor::encoder
