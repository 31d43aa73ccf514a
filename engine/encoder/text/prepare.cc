#include "engine/encoder/text/prepare.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/text/prompts.h"
#include "engine/encoder/text/spans.h"
#include "engine/encoder/text/text_model.h"
#include "engine/hf/tokenizer.h"
#include "engine/tensor_reader.h"

namespace castor::encoder {
namespace {

absl::Status TooLong(std::string_view field, int64_t max_tokens) {
  return InvalidField(field,
                      absl::StrCat("is longer than ", max_tokens, " tokens, and truncate is off"));
}

// Cuts sequences of known lengths: records the offsets of the tokens kept, and which were cut.
absl::Status CutLengths(const std::vector<int64_t>& lengths, std::string_view field, bool truncate,
                        int64_t max_tokens, Prepared* prepared) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    const bool cut = lengths[i] > max_tokens;
    if (cut && !truncate) return TooLong(FieldAt(field, i), max_tokens);
    prepared->truncated.push_back(cut);
    prepared->cu_seqlens.push_back(prepared->cu_seqlens.back() +
                                   static_cast<int32_t>(std::min(lengths[i], max_tokens)));
  }
  return absl::OkStatus();
}

// Pads a query that was appended to `prepared`, whose offsets do not have it yet, and marks the
// tokens that have a row.
absl::Status ApplyLateInteraction(const LateInteraction& late, const Prompt* prompt,
                                  int64_t max_tokens, Prepared* prepared) {
  const auto first = static_cast<size_t>(prepared->cu_seqlens.back());
  const int64_t padded_to = prompt == nullptr ? 0 : std::min(prompt->padded_to, max_tokens);
  const size_t padded = first + static_cast<size_t>(padded_to);
  for (; prepared->ids.size() < padded; prepared->type_ids.push_back(0)) {
    if (prompt->hides_padding)
      prepared->hidden.push_back(static_cast<int64_t>(prepared->ids.size()));
    prepared->ids.push_back(late.padding);
  }
  if (late.skipped.empty()) return absl::OkStatus();
  if (prepared->kept_seqlens.empty()) prepared->kept_seqlens.push_back(0);
  const bool query = prompt != nullptr && prompt->name == kQueryPrompt;
  const bool skips = query ? late.skips_queries : late.skips_documents;
  for (size_t i = first; i < prepared->ids.size(); ++i) {
    if (skips && std::ranges::binary_search(late.skipped, prepared->ids[i])) continue;
    prepared->kept.push_back(static_cast<int64_t>(i));
  }
  const auto kept = static_cast<int32_t>(prepared->kept.size());
  if (kept == prepared->kept_seqlens.back()) {
    return InvalidField(FieldAt("texts.texts", static_cast<size_t>(prepared->sequences())),
                        "has only tokens of the model's skiplist, which have no rows");
  }
  prepared->kept_seqlens.push_back(kept);
  return absl::OkStatus();
}

absl::StatusOr<bool> PrepareTexts(const EncodeRequest& request, const InputRules& rules,
                                  const Prompts& prompts, const hf::Tokenizer& tokenizer,
                                  const PairTemplate* pairs, const Slice& slice,
                                  Prepared* prepared) {
  const TextInput& input = std::get<TextInput>(request.input);
  const int64_t added = rules.special_tokens ? tokenizer.added_tokens(!input.pairs.empty()) : 0;
  if (const Prompt* const first = PromptOf(request, prompts)) {
    prepared->left_out = first->left_out;
  } else if (!prompts.pooled && request.prompt.has_value() && !request.prompt->empty() &&
             prepared->sequences() == 0) {
    const auto left_out = CountLeftOut(tokenizer, *request.prompt, MaxTokens(request, rules));
    if (!left_out.ok()) return InvalidField("prompt", std::string(left_out.status().message()));
    prepared->left_out = *left_out;
  }
  hf::EncodeOptions options{.cut_left = CutsLeft(request, rules),
                            .allow_special_tokens = input.allow_special_tokens,
                            .add_special_tokens = rules.special_tokens,
                            .stop = slice.stop};
  const bool needs_offsets = NeedsOffsets(request);
  hf::TokenOffsets offsets;
  std::string prompted;
  int64_t bytes = 0;
  for (auto i = static_cast<size_t>(prepared->sequences()); i < input.texts.size(); ++i) {
    if (bytes >= slice.bytes) return false;
    if (slice.stop && slice.stop()) return MakeError(Reason::kCancelled, "tokenizing was stopped");
    const std::string_view prompt = PromptTextOf(request, prompts, i);
    const Prompt* const named = PromptOf(request, prompts, i);
    options.max_tokens = MaxTokens(request, rules, named);
    const int64_t special = added + (named != nullptr && named->marker.has_value() ? 1 : 0);
    if (options.max_tokens <= special) {
      return InvalidField(
          "max_tokens", absl::StrCat("leaves no room for text after ", special, " special tokens"));
    }
    bytes += BytesOf(input, i) + static_cast<int64_t>(prompt.size());
    std::optional<std::string_view> pair;
    if (!input.pairs.empty()) pair = input.pairs[i];
    const bool fills = pairs != nullptr && pair.has_value();
    const absl::StatusOr<bool> cut =
        fills ? pairs->Encode(tokenizer, prompt, input.texts[i], *pair, options, &prepared->ids)
              : EncodePrompted(tokenizer, named, prompt, input.texts[i], pair, options, &prompted,
                               &prepared->ids, &prepared->type_ids,
                               needs_offsets ? &offsets : nullptr);
    if (fills) prepared->type_ids.resize(prepared->ids.size());
    if (cut.status().code() == absl::StatusCode::kInvalidArgument && !FieldOf(cut.status())) {
      return InvalidField(FieldAt("texts.texts", i), std::string(cut.status().message()));
    }
    if (!cut.ok()) return cut.status();
    if (input.allow_special_tokens) {
      const auto first = prepared->ids.begin() + prepared->cu_seqlens.back();
      const auto beyond = std::find_if(first, prepared->ids.end(),
                                       [&](int64_t id) { return id >= rules.vocabulary; });
      if (beyond != prepared->ids.end()) {
        return InvalidField(FieldAt("texts.texts", i),
                            absl::StrCat("holds the special token ", *beyond,
                                         ", which has no embedding in this model"));
      }
    }
    if (*cut && !request.truncate) return TooLong(FieldAt("texts.texts", i), options.max_tokens);
    // A tokenizer without a post-processor may produce no tokens.
    if (prepared->ids.size() == static_cast<size_t>(prepared->cu_seqlens.back())) {
      return InvalidField(FieldAt("texts.texts", i), "has no tokens");
    }
    absl::Status late =
        ApplyLateInteraction(rules.late, named, MaxTokens(request, rules), prepared);
    if (!late.ok()) return late;
    prepared->truncated.push_back(*cut);
    prepared->cu_seqlens.push_back(static_cast<int32_t>(prepared->ids.size()));
    if (*cut && options.cut_left && !needs_offsets && !request.spans.ranges.empty()) {
      return InvalidField("spans.unit",
                          "TOKENS cannot be counted in a text that is cut on the left: use "
                          "CHARACTERS or BYTES");
    }
    absl::Status placed =
        needs_offsets ? PlaceOnText(request.spans, input, i, prompt.size(), offsets, prepared)
                      : PlaceOnTokens(request.spans, i, 0, prepared);
    if (!placed.ok()) return placed;
  }
  // The tokenizer gives a pair's second text type 1 even if the model has only one type.
  if (rules.types <= 1 || !rules.text_types) prepared->type_ids.clear();
  return true;
}

absl::Status PrepareTokens(const EncodeRequest& request, const InputRules& rules,
                           Prepared* prepared) {
  const TokenInput& input = std::get<TokenInput>(request.input);
  const std::vector<int64_t> lengths =
      LengthsOf(input.lengths, static_cast<int64_t>(input.ids.size()));
  absl::Status status =
      CutLengths(lengths, "tokens.lengths", request.truncate, MaxTokens(request, rules), prepared);
  if (!status.ok()) return status;
  const bool left = CutsLeft(request, rules);
  size_t from = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t kept = prepared->cu_seqlens[i + 1] - prepared->cu_seqlens[i];
    const auto append = [&](const std::vector<int64_t>& source, std::vector<int64_t>* target) {
      const int64_t dropped = left ? lengths[i] - kept : 0;
      const std::span<const int64_t> rows = std::span(source).subspan(from + dropped, kept);
      target->insert(target->end(), rows.begin(), rows.end());
    };
    append(input.ids, &prepared->ids);
    if (!input.type_ids.empty()) append(input.type_ids, &prepared->type_ids);
    from += lengths[i];
  }
  return absl::OkStatus();
}

}  // namespace

TextModel::TextModel(ModelInfo info, std::unique_ptr<hf::Tokenizer> tokenizer,
                     std::optional<PairTemplate> pairs, Network network)
    : info_(std::move(info)),
      tokenizer_(std::move(tokenizer)),
      pairs_(std::move(pairs)),
      network_(std::move(network)),
      activations_(network_.activations(info_.dtype)) {}

std::vector<AttentionLayers> TextModel::attention(const Kernel& kernel) const {
  return AttentionLayersOf(network_.body().info(), info_.dtype, kernel);
}

std::vector<int64_t> LengthsOf(const std::vector<int64_t>& lengths, int64_t tokens) {
  return lengths.empty() ? std::vector<int64_t>{tokens} : lengths;
}

int64_t BytesOf(const TextInput& input, size_t index) {
  const size_t pair = input.pairs.empty() ? 0 : input.pairs[index].size();
  return static_cast<int64_t>(input.texts[index].size() + pair);
}

int64_t MaxTokens(const EncodeRequest& request, const InputRules& rules, const Prompt* prompt) {
  int64_t limit = request.max_tokens;
  if (limit == 0 && prompt != nullptr) limit = prompt->max_tokens;
  return limit > 0 ? std::min(limit, rules.max_tokens) : rules.max_tokens;
}

bool CutsLeft(const EncodeRequest& request, const InputRules& rules) {
  return request.truncation_side.value_or(rules.cut_left ? Side::kLeft : Side::kRight) ==
         Side::kLeft;
}

int64_t TextModel::EstimateTokens(const EncodeRequest& request) const {
  const int64_t max_tokens = MaxTokens(request, rules());
  if (const auto* texts = std::get_if<TextInput>(&request.input)) {
    // A token covers at least one code point of normalised text. A byte gives at most 1.5 of these
    // (U+0390, two bytes, decomposes into three); 8 covers the special tokens of any pair.
    int64_t total = 0;
    for (size_t i = 0; i < texts->texts.size(); ++i) {
      const auto prefix = static_cast<int64_t>(PromptTextOf(request, info_.prompts, i).size());
      const Prompt* const prompt = PromptOf(request, info_.prompts, i);
      const int64_t least = prompt == nullptr ? 0 : prompt->padded_to;
      const int64_t most = 2 * (prefix + BytesOf(*texts, i)) + 8 + info_.template_tokens;
      total += std::min(max_tokens, std::max(least, most));
    }
    return total;
  }
  const auto cut_total = [&](const std::vector<int64_t>& lengths, int64_t tokens) {
    if (lengths.empty()) return std::min(tokens, max_tokens);
    int64_t total = 0;
    for (const int64_t length : lengths) total += std::min(length, max_tokens);
    return total;
  };
  if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    return cut_total(tokens->lengths, static_cast<int64_t>(tokens->ids.size()));
  }
  const auto& embeddings = std::get<EmbeddingInput>(request.input);
  return cut_total(embeddings.lengths, embeddings.values.shape[0]);
}

absl::StatusOr<bool> TextModel::PrepareSome(const EncodeRequest& request, const Slice& slice,
                                            Prepared* prepared) const {
  BeginSpans(request.spans, prepared);
  absl::Status status;
  if (std::holds_alternative<TextInput>(request.input)) {
    const auto done = PrepareTexts(request, rules(), info_.prompts, *tokenizer_,
                                   pairs_ ? &*pairs_ : nullptr, slice, prepared);
    if (!done.ok() || !*done) return done;
    status = EndSpans(prepared);
    if (!status.ok()) return status;
    return true;
  }
  std::vector<int64_t> lengths;
  if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    lengths = LengthsOf(tokens->lengths, static_cast<int64_t>(tokens->ids.size()));
    status = PrepareTokens(request, rules(), prepared);
  } else {
    const auto& embeddings = std::get<EmbeddingInput>(request.input);
    lengths = LengthsOf(embeddings.lengths, embeddings.values.shape[0]);
    status = CutLengths(lengths, "embeddings.lengths", request.truncate,
                        MaxTokens(request, rules()), prepared);
  }
  prepared->cut_left = CutsLeft(request, rules());
  for (size_t i = 0; status.ok() && i < prepared->truncated.size(); ++i) {
    const int64_t kept = prepared->cu_seqlens[i + 1] - prepared->cu_seqlens[i];
    status = PlaceOnTokens(request.spans, i, prepared->cut_left ? lengths[i] - kept : 0, prepared);
  }
  if (status.ok()) status = EndSpans(prepared);
  if (!status.ok()) return status;
  return true;
}

absl::Status CopyEmbeddings(const EmbeddingInput& input, const Prepared& prepared, std::byte* out) {
  const std::vector<int64_t> lengths = LengthsOf(input.lengths, input.values.shape[0]);
  const size_t row = static_cast<size_t>(input.values.shape[1]) * SizeOf(input.values.dtype);
  TensorReader reader(input.values, "embeddings.values");
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t kept = prepared.cu_seqlens[i + 1] - prepared.cu_seqlens[i];
    const size_t bytes = static_cast<size_t>(kept) * row;
    const size_t dropped = static_cast<size_t>(lengths[i] - kept) * row;
    if (prepared.cut_left) reader.Skip(dropped);
    if (absl::Status s = reader.Read(bytes, out); !s.ok()) return s;
    out += bytes;
    if (!prepared.cut_left) reader.Skip(dropped);
  }
  return absl::OkStatus();
}

}  // namespace castor::encoder
