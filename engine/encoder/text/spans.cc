#include "engine/encoder/text/spans.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kRanges = "spans.ranges";

absl::Status InvalidRange(size_t index, std::string_view part, std::string_view problem) {
  return InvalidField(FieldAt(kRanges, index).append(part), problem);
}

absl::Status Beyond(size_t index, int64_t end, std::string_view what, size_t size,
                    std::string_view unit) {
  return InvalidRange(index, ".end",
                      absl::StrCat("is ", end, ", but the ", std::string(what), " has ", size, " ",
                                   std::string(unit)));
}

// The number of sequences, and their lengths if they are known without a tokenizer.
struct Sizes {
  explicit Sizes(const EncodeRequest& request) {
    if (const auto* given = std::get_if<TextInput>(&request.input)) {
      texts = given;
      sequences = given->texts.size();
      return;
    }
    const auto* tokens = std::get_if<TokenInput>(&request.input);
    const auto* embeddings = std::get_if<EmbeddingInput>(&request.input);
    lengths = tokens != nullptr ? tokens->lengths : embeddings->lengths;
    all =
        tokens != nullptr ? static_cast<int64_t>(tokens->ids.size()) : embeddings->values.shape[0];
    sequences = std::max<size_t>(1, lengths.size());
  }

  int64_t tokens(size_t sequence) const { return lengths.empty() ? all : lengths[sequence]; }

  const TextInput* texts = nullptr;
  size_t sequences = 0;
  std::span<const int64_t> lengths;
  int64_t all = 0;
};

bool InsideCharacter(std::string_view text, int64_t at) {
  const auto index = static_cast<size_t>(at);
  return index < text.size() && (static_cast<unsigned char>(text[index]) & 0xc0) == 0x80;
}

absl::Status CheckBytes(std::string_view text, const Spans::Range& range, size_t index) {
  if (range.end > static_cast<int64_t>(text.size())) {
    return Beyond(index, range.end, "text", text.size(), "bytes");
  }
  if (InsideCharacter(text, range.begin)) {
    return InvalidRange(index, ".begin", "is inside a character");
  }
  if (InsideCharacter(text, range.end)) {
    return InvalidRange(index, ".end", "is inside a character");
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const Sizes& sizes, Spans::Unit unit, const Spans::Range& range,
                        size_t index) {
  if (range.sequence < 0 || static_cast<size_t>(range.sequence) >= sizes.sequences) {
    return InvalidRange(
        index, ".sequence",
        absl::StrCat("is ", range.sequence, "; must be within 0..", sizes.sequences - 1));
  }
  if (range.begin < 0) return InvalidRange(index, ".begin", "must not be negative");
  if (range.end <= range.begin) return InvalidRange(index, ".end", "must be greater than begin");
  const auto sequence = static_cast<size_t>(range.sequence);
  if (range.pair && (unit == Spans::Unit::kTokens || sizes.texts->pairs.empty())) {
    return InvalidRange(index, ".pair",
                        unit == Spans::Unit::kTokens
                            ? "must be left out: tokens are counted through both texts"
                            : "the request has no second texts");
  }
  if (unit == Spans::Unit::kBytes) {
    const auto& texts = range.pair ? sizes.texts->pairs : sizes.texts->texts;
    return CheckBytes(texts[sequence], range, index);
  }
  if (sizes.texts == nullptr && range.end > sizes.tokens(sequence)) {
    return Beyond(index, range.end, "sequence", static_cast<size_t>(sizes.tokens(sequence)),
                  "tokens");
  }
  return absl::OkStatus();
}

// Calls `place` with each range of the sequence and its index, until a call fails.
template <typename Place>
absl::Status ForRangesOf(const Spans& spans, size_t sequence, const Prepared& prepared,
                         Place&& place) {
  const std::vector<uint32_t>& order = prepared.span_order;
  auto at = std::lower_bound(order.begin(), order.end(), sequence, [&](uint32_t i, size_t value) {
    return static_cast<size_t>(spans.ranges[i].sequence) < value;
  });
  for (; at != order.end() && static_cast<size_t>(spans.ranges[*at].sequence) == sequence; ++at) {
    absl::Status status = place(spans.ranges[*at], *at);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The bytes where a text's characters begin, and its size.
class Characters {
 public:
  explicit Characters(std::string_view text) : size_(text.size()) {
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
    if (std::none_of(text.begin(), text.end(), continues)) return;  // one byte each
    for (size_t i = 0; i < text.size(); ++i) {
      if (!continues(text[i])) begins_.push_back(i);
    }
  }

  size_t count() const { return begins_.empty() ? size_ : begins_.size(); }
  size_t byte(int64_t character) const {  // at most count()
    const auto index = static_cast<size_t>(character);
    if (begins_.empty()) return index;
    return index == begins_.size() ? size_ : begins_[index];
  }

 private:
  const size_t size_;
  std::vector<size_t> begins_;  // empty if each has one byte
};

// Finds the tokens of byte ranges of one text. Tokens are in the order of the text, except where a
// normalizer moved characters: there a range may get a neighbour's token in addition to its own.
class Finder {
 public:
  Finder(std::string_view text, Spans::Unit unit, const hf::TokenOffsets& offsets,
         const hf::TokenOffsets::Text& tokens)
      : tokens_(tokens) {
    if (unit == Spans::Unit::kCharacters) characters_.emplace(text);
    size_t furthest = 0;
    for (size_t t = tokens.begin; t < tokens.end; ++t) {
      const hf::TokenOffsets::Bytes& bytes = offsets.bytes[t];
      furthest = std::max(furthest, bytes.end);
      ends_.push_back(furthest);
      begins_.push_back(bytes.begin < bytes.end ? bytes.begin : SIZE_MAX);  // empty: as the next
    }
    for (size_t t = begins_.size(); t-- > 1;) begins_[t - 1] = std::min(begins_[t - 1], begins_[t]);
  }

  absl::Status Find(const Spans::Range& range, size_t index, size_t prefix,
                    PooledSpan* span) const {
    auto begin = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
    if (characters_.has_value()) {
      if (end > characters_->count()) {
        return Beyond(index, range.end, "text", characters_->count(), "characters");
      }
      begin = characters_->byte(range.begin);
      end = characters_->byte(range.end);
    }
    begin += prefix;
    end += prefix;
    const auto first = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    const auto last = std::lower_bound(begins_.begin(), begins_.end(), end) - begins_.begin();
    span->truncated = end > tokens_.cut || begin < tokens_.head;
    span->begin = static_cast<int32_t>(tokens_.begin) + static_cast<int32_t>(first);
    span->end = static_cast<int32_t>(tokens_.begin) + static_cast<int32_t>(last);
    span->end = std::max(span->begin, span->end);
    return absl::OkStatus();
  }

 private:
  const hf::TokenOffsets::Text tokens_;
  std::optional<Characters> characters_;
  std::vector<size_t> ends_;    // per token: the greatest end up to it
  std::vector<size_t> begins_;  // per token: the least begin from it on
};

}  // namespace

Spans::Unit UnitOf(const EncodeRequest& request) {
  return request.spans.unit.value_or(std::holds_alternative<TextInput>(request.input)
                                         ? Spans::Unit::kCharacters
                                         : Spans::Unit::kTokens);
}

absl::Status CheckSpans(const EncodeRequest& request, bool pools) {
  const std::vector<Spans::Range>& ranges = request.spans.ranges;
  if (ranges.empty()) return absl::OkStatus();
  if (!pools) {
    return InvalidField("spans", "need the output POOLED");
  }
  if (ranges.size() > static_cast<size_t>(kMostSpans)) {
    return InvalidField(kRanges, absl::StrCat("has ", ranges.size(), " entries; at most ",
                                              kMostSpans, " are allowed in one request"));
  }
  const Spans::Unit unit = UnitOf(request);
  const Sizes sizes(request);
  if (sizes.texts == nullptr && unit != Spans::Unit::kTokens) {
    return InvalidField("spans.unit",
                        "must be TOKENS: token ids and embeddings have no characters");
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (absl::Status s = CheckRange(sizes, unit, ranges[i], i); !s.ok()) return s;
  }
  return absl::OkStatus();
}

bool NeedsOffsets(const EncodeRequest& request) {
  return !request.spans.ranges.empty() && UnitOf(request) != Spans::Unit::kTokens;
}

void BeginSpans(const Spans& spans, Prepared* prepared) {
  if (spans.ranges.empty() || !prepared->spans.empty()) return;
  prepared->spans.resize(spans.ranges.size());
  prepared->span_order.resize(spans.ranges.size());
  std::iota(prepared->span_order.begin(), prepared->span_order.end(), uint32_t{0});
  std::sort(prepared->span_order.begin(), prepared->span_order.end(), [&](uint32_t a, uint32_t b) {
    return spans.ranges[a].sequence != spans.ranges[b].sequence
               ? spans.ranges[a].sequence < spans.ranges[b].sequence
               : a < b;
  });
}

absl::Status PlaceOnText(const Spans& spans, const TextInput& input, size_t sequence, size_t prefix,
                         const hf::TokenOffsets& offsets, Prepared* prepared) {
  const Spans::Unit unit = spans.unit.value_or(Spans::Unit::kCharacters);
  std::optional<Finder> finders[2];  // of the text and its pair
  return ForRangesOf(
      spans, sequence, *prepared, [&](const Spans::Range& range, size_t index) -> absl::Status {
        std::optional<Finder>& finder = finders[range.pair ? 1 : 0];
        if (!finder.has_value()) {
          finder.emplace(range.pair ? input.pairs[sequence] : input.texts[sequence], unit, offsets,
                         offsets.texts[range.pair ? 1 : 0]);
        }
        return finder->Find(range, index, range.pair ? 0 : prefix, &prepared->spans[index]);
      });
}

absl::Status PlaceOnTokens(const Spans& spans, size_t sequence, int64_t dropped,
                           Prepared* prepared) {
  const std::vector<int32_t>& offsets = prepared->cu_seqlens;
  const int64_t tokens = offsets[sequence + 1] - offsets[sequence];
  const bool cut = prepared->truncated[sequence];
  return ForRangesOf(
      spans, sequence, *prepared, [&](const Spans::Range& range, size_t index) -> absl::Status {
        if (range.end > tokens && !cut) {
          return Beyond(index, range.end, "sequence", static_cast<size_t>(tokens), "tokens");
        }
        const auto place = [&](int64_t at) {
          return static_cast<int32_t>(std::clamp<int64_t>(at - dropped, 0, tokens));
        };
        prepared->spans[index] = {
            .begin = place(range.begin),
            .end = place(range.end),
            .truncated = range.begin < dropped || range.end - dropped > tokens};
        return absl::OkStatus();
      });
}

absl::Status EndSpans(Prepared* prepared) {
  int64_t rows = 0;
  for (const PooledSpan& span : prepared->spans) rows += span.end - span.begin;
  const int64_t most =
      kMostSpanRows * (prepared->tokens() + static_cast<int64_t>(prepared->spans.size()));
  if (rows > most) {
    return InvalidField(
        kRanges, absl::StrCat("cover ", rows, " tokens together; at most ", most,
                              " are allowed: ", kMostSpanRows, " for each token and each range"));
  }
  prepared->span_order = {};
  return absl::OkStatus();
}

}  // namespace castor::encoder
