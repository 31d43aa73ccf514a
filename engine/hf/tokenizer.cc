#include "engine/hf/tokenizer.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/error.h"
#include "engine/hf/castor_hf.h"
#include "engine/hf/json.h"

namespace castor::hf {
namespace {

const uint8_t* Bytes(std::string_view text) {
  // Null means "no pair" to Rust, and an empty view may hold a null pointer.
  return reinterpret_cast<const uint8_t*>(text.data() == nullptr ? "" : text.data());
}

castor_hf_view View(const std::string& text) { return {Bytes(text), text.size()}; }

castor_hf_view ViewOf(const std::optional<std::string>& file) {
  return file.has_value() ? View(*file) : castor_hf_view{nullptr, 0};
}

bool CallStop(void* stop) { return (*static_cast<const std::function<bool()>*>(stop))(); }

void ReadOffsets(const castor_hf_encoding& encoding, TokenOffsets* offsets) {
  *offsets = {};
  if (encoding.offsets == nullptr) return;  // it was stopped
  for (size_t i = 0; i < encoding.size; ++i) {
    offsets->bytes.push_back({encoding.offsets[i].begin, encoding.offsets[i].end});
  }
  for (size_t i = 0; i < std::size(offsets->texts); ++i) {
    const castor_hf_text_tokens& text = encoding.texts[i];
    offsets->texts[i] = {.begin = text.begin, .end = text.end, .cut = text.cut, .head = text.head};
  }
}

absl::StatusOr<std::string> TakeText(char* error, castor_hf_text* text) {
  if (error != nullptr) {
    return MakeError(Reason::kInternal, absl::StrCat("tokenizer: ", TakeError(error)));
  }
  std::string taken(reinterpret_cast<const char*>(text->data), text->size);
  castor_hf_text_free(text);
  return taken;
}

}  // namespace

bool IsUtf8(std::string_view text) { return castor_hf_is_utf8(Bytes(text), text.size()); }

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Open(const TokenizerFiles& files) {
  const castor_hf_tokenizer_files views{.tokenizer = ViewOf(files.tokenizer),
                                        .vocabulary = ViewOf(files.vocabulary),
                                        .merges = ViewOf(files.merges),
                                        .settings = View(files.settings)};
  castor_hf_tokenizer* handle = nullptr;
  castor_hf_tokenizer_info info{};
  if (char* error = castor_hf_tokenizer_open(&views, &handle, &info)) {
    return absl::InvalidArgumentError(TakeError(error));
  }
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(handle));
  tokenizer->id_limit_ = static_cast<int64_t>(info.id_limit);
  tokenizer->type_limit_ = static_cast<int64_t>(info.type_limit);
  std::ranges::copy(info.added_tokens, tokenizer->added_tokens_);
  tokenizer->longest_token_ = static_cast<int64_t>(info.longest_token);
  tokenizer->cuts_left_ = info.cuts_left;
  return tokenizer;
}

Tokenizer::~Tokenizer() { castor_hf_tokenizer_close(handle_); }

absl::StatusOr<bool> Tokenizer::Encode(std::string_view text, std::optional<std::string_view> pair,
                                       const EncodeOptions& options, std::vector<int64_t>* ids,
                                       std::vector<int64_t>* type_ids,
                                       TokenOffsets* offsets) const {
  castor_hf_encoding encoding{};
  if (char* error = castor_hf_tokenizer_encode(
          handle_, Bytes(text), text.size(), pair ? Bytes(*pair) : nullptr, pair ? pair->size() : 0,
          static_cast<size_t>(options.max_tokens), options.cut_left, options.allow_special_tokens,
          options.add_special_tokens,
          offsets == nullptr     ? CASTOR_HF_NO_OFFSETS
          : options.trim_offsets ? CASTOR_HF_WITHOUT_SPACES
                                 : CASTOR_HF_AS_TOKENIZED,
          options.stop ? CallStop : nullptr, const_cast<std::function<bool()>*>(&options.stop),
          &encoding)) {
    return MakeError(Reason::kInternal, absl::StrCat("tokenizer: ", TakeError(error)));
  }
  ids->insert(ids->end(), encoding.ids, encoding.ids + encoding.size);
  type_ids->insert(type_ids->end(), encoding.type_ids, encoding.type_ids + encoding.size);
  if (offsets != nullptr) ReadOffsets(encoding, offsets);
  const bool truncated = encoding.truncated;
  const bool stopped = encoding.stopped, too_long = encoding.too_long;
  castor_hf_encoding_free(&encoding);
  if (stopped) return MakeError(Reason::kCancelled, "tokenizing was stopped");
  if (too_long) {
    return absl::InvalidArgumentError(
        "becomes too long when the tokenizer's normalizer is applied");
  }
  return truncated;
}

absl::StatusOr<std::string> Tokenizer::TokenOf(int64_t id) const {
  castor_hf_text text{};
  return TakeText(castor_hf_tokenizer_token(handle_, static_cast<uint32_t>(id), &text), &text);
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int64_t> ids,
                                              bool skip_special_tokens) const {
  const std::vector<uint32_t> narrow(ids.begin(), ids.end());
  castor_hf_text text{};
  return TakeText(
      castor_hf_tokenizer_decode(handle_, narrow.data(), narrow.size(), skip_special_tokens, &text),
      &text);
}

}  // namespace castor::hf
