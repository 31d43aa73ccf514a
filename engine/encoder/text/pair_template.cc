#include "engine/encoder/text/pair_template.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error.h"

namespace castor::encoder {
namespace {

using Stretches = std::vector<PairTemplate::Stretch>;

constexpr int64_t kAnyLength = int64_t{1} << 40;

struct Texts {
  std::string_view instruction, query, document;

  std::string In(std::string_view text) const {
    std::string filled;
    for (size_t at; (at = text.find('\1')) != text.npos; text.remove_prefix(at + 2)) {
      filled.append(text.substr(0, at));
      filled.append(text[at + 1] == 'i' ? instruction : text[at + 1] == 'q' ? query : document);
    }
    return filled.append(text);
  }
};

// Appends the first options.max_tokens ids, and returns whether there are more. Words may cross the
// borders of the texts, as in the whole text.
absl::StatusOr<bool> EncodeStretches(const hf::Tokenizer& tokenizer, const Stretches& stretches,
                                     const Texts& texts, hf::EncodeOptions options,
                                     std::vector<int64_t>* ids) {
  options.add_special_tokens = false;
  options.cut_left = false;
  std::vector<int64_t> type_ids;
  for (const PairTemplate::Stretch& stretch : stretches) {
    const auto before = std::ssize(*ids);
    const std::string text = texts.In(stretch.text);
    if (!text.empty()) {
      if (options.max_tokens == 0) return true;
      const auto cut = tokenizer.Encode(text, std::nullopt, options, ids, &type_ids);
      if (!cut.ok() || *cut) return cut;
    }
    options.max_tokens -= std::ssize(*ids) - before;
    if (stretch.special < 0) continue;
    if (options.max_tokens-- == 0) return true;
    ids->push_back(stretch.special);
  }
  return false;
}

// Divides a template at its special tokens.
absl::StatusOr<Stretches> Divide(const std::string& text, const hf::Tokenizer& tokenizer) {
  std::vector<int64_t> ids, type_ids;
  hf::TokenOffsets offsets;
  const hf::EncodeOptions options{.max_tokens = kAnyLength,
                                  .allow_special_tokens = true,
                                  .add_special_tokens = false,
                                  .trim_offsets = false};
  const auto cut = tokenizer.Encode(text, std::nullopt, options, &ids, &type_ids, &offsets);
  if (!cut.ok()) return cut.status();
  Stretches stretches;
  size_t done = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto with = tokenizer.Decode({&ids[i], 1}, /*skip_special_tokens=*/false);
    const auto without = tokenizer.Decode({&ids[i], 1}, /*skip_special_tokens=*/true);
    if (!with.ok()) return with.status();
    if (!without.ok()) return without.status();
    if (with->empty() || !without->empty()) continue;
    const auto [begin, end] = offsets.bytes[i];
    stretches.push_back({text.substr(done, begin - done), ids[i]});
    done = end;
  }
  if (done < text.size()) stretches.push_back({text.substr(done)});
  return stretches;
}

// The tokens at the end that are the template's own, or the instruction's.
absl::StatusOr<std::vector<int64_t>> SuffixOf(const hf::Tokenizer& tokenizer,
                                              const Stretches& stretches,
                                              std::string_view instruction) {
  constexpr std::string_view kFillers[] = {"0", "1 2 3 4"};  // as sentence-transformers'
  std::vector<int64_t> ids[2];
  for (size_t i = 0; i < 2; ++i) {
    const auto cut = EncodeStretches(tokenizer, stretches, {instruction, kFillers[i], kFillers[i]},
                                     {.max_tokens = kAnyLength}, &ids[i]);
    if (!cut.ok()) return cut.status();
  }
  const auto [first, second] =
      std::mismatch(ids[0].rbegin(), ids[0].rend(), ids[1].rbegin(), ids[1].rend());
  if (first == ids[0].rend() || second == ids[1].rend()) {
    return absl::InvalidArgumentError("has no end that this tokenizer tells from a document");
  }
  return std::vector<int64_t>(first.base(), ids[0].end());
}

// Divides it, and checks that it can be cut and that stretches give the ids of the whole text.
absl::StatusOr<Stretches> Check(const std::string& text, const hf::Tokenizer& tokenizer) {
  const size_t document = text.find(kDocumentPlace), query = text.rfind(kQueryPlace);
  if (query > document || document == text.npos || text.rfind(kDocumentPlace) != document) {
    return absl::InvalidArgumentError("must put the query into the text, then the document, once");
  }
  absl::StatusOr<Stretches> stretches = Divide(text, tokenizer);
  if (!stretches.ok()) return stretches;
  for (const std::string_view filler : {"0", " a b "}) {
    const Texts texts{filler, filler, filler};
    std::vector<int64_t> ids, whole, type_ids;
    hf::EncodeOptions options{.max_tokens = kAnyLength};
    const auto divided = EncodeStretches(tokenizer, *stretches, texts, options, &ids);
    if (!divided.ok()) return divided.status();
    options.allow_special_tokens = true;
    options.add_special_tokens = false;
    const auto at_once = tokenizer.Encode(texts.In(text), std::nullopt, options, &whole, &type_ids);
    if (!at_once.ok()) return at_once.status();
    if (ids != whole) {
      return absl::InvalidArgumentError(
          "has special tokens, after which this tokenizer reads text otherwise than at the start");
    }
  }
  const absl::Status suffix = SuffixOf(tokenizer, *stretches, {}).status();
  if (!suffix.ok()) return suffix;
  return stretches;
}

}  // namespace

absl::StatusOr<PairTemplate> PairTemplate::Make(const std::string& plain,
                                                const std::string& instructed,
                                                const hf::Tokenizer& tokenizer) {
  PairTemplate made;
  made.takes_instruction_ = instructed.find(kInstructionPlace) != instructed.npos;
  for (const bool with : {false, true}) {
    absl::StatusOr<Stretches> stretches = Check(with ? instructed : plain, tokenizer);
    if (!stretches.ok()) return stretches.status();
    std::vector<int64_t> ids;
    const auto cut = EncodeStretches(tokenizer, *stretches, {}, {.max_tokens = kAnyLength}, &ids);
    if (!cut.ok()) return cut.status();
    made.tokens_ = std::max<int64_t>(made.tokens_, std::ssize(ids));
    (with ? made.instructed_ : made.plain_) = *std::move(stretches);
  }
  return made;
}

absl::StatusOr<bool> PairTemplate::Encode(const hf::Tokenizer& tokenizer,
                                          std::string_view instruction, std::string_view query,
                                          std::string_view document,
                                          const hf::EncodeOptions& options,
                                          std::vector<int64_t>* ids) const {
  const Stretches& stretches = instruction.empty() ? plain_ : instructed_;
  const size_t first = ids->size();
  const auto cut =
      EncodeStretches(tokenizer, stretches, {instruction, query, document}, options, ids);
  if (!cut.ok() || !*cut) return cut;
  std::vector<int64_t> rest;
  const auto full = EncodeStretches(tokenizer, stretches, {instruction, query, ""}, options, &rest);
  if (!full.ok()) return full;
  if (*full || std::ssize(rest) >= options.max_tokens) {
    return InvalidField("query",
                        absl::StrCat("leaves no room for a document within ", options.max_tokens,
                                     " tokens, with the ", "instruction and the model's own text"));
  }
  const absl::StatusOr<std::vector<int64_t>> suffix = SuffixOf(tokenizer, stretches, instruction);
  if (!suffix.ok()) return suffix.status();
  ids->resize(first + options.max_tokens - suffix->size());
  ids->insert(ids->end(), suffix->begin(), suffix->end());
  return true;
}

}  // namespace castor::encoder
