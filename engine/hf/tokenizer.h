// A model directory's tokenizer, by the reference implementation (the Rust crate `tokenizers`).
//
// Immutable and thread-safe. Padding of tokenizer.json is ignored; of its truncation only the side
// counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct castor_hf_tokenizer;

namespace castor::hf {

// The most bytes of a tokenizer.json: ten times the largest in use.
inline constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// Whether `text` is UTF-8 as Rust and protobuf define it: no overlong forms, no surrogates.
bool IsUtf8(std::string_view text);

// The files of a tokenizer. castor_hf.h documents them.
struct TokenizerFiles {
  std::optional<std::string> tokenizer;   // tokenizer.json
  std::optional<std::string> vocabulary;  // vocab.txt or vocab.json
  std::optional<std::string> merges;      // merges.txt
  std::string settings;                   // JSON: Settings of src/assemble.rs
};

struct EncodeOptions {
  // The most tokens of the result, special tokens included. Longer input is cut on the right, or
  // the left if cut_left. The longer text of a pair is cut first.
  int64_t max_tokens = 512;
  bool cut_left = false;

  // Whether markers such as "[SEP]" in the text become special tokens. Otherwise they are plain
  // text.
  bool allow_special_tokens = false;

  // Whether the post-processor adds its special tokens.
  bool add_special_tokens = true;

  // Whether offsets exclude whitespace at either end of a token.
  bool trim_offsets = true;

  // If set, called between the parts of a long text. True ends the work. Must not throw.
  std::function<bool()> stop = {};
};

// The part of its text that each token of one encoding was made of.
struct TokenOffsets {
  struct Bytes {  // of UTF-8
    size_t begin = 0;
    size_t end = 0;
    bool operator==(const Bytes&) const = default;
  };
  struct Text {
    size_t begin = 0;  // its tokens in the encoding
    size_t end = 0;
    size_t cut = SIZE_MAX;  // tokens were cut off from this byte on; SIZE_MAX: none
    size_t head = 0;        // tokens were cut off up to this byte; 0: none
  };

  // One per token. Empty for special tokens that the post-processor added, and, if trimmed
  // (EncodeOptions), for tokens of whitespace only. A character that became several tokens is in
  // each.
  std::vector<Bytes> bytes;
  Text texts[2];  // the text and its pair
};

class Tokenizer {
 public:
  // Makes the tokenizer of `files`. Errors name the file. A tokenizer that cannot encode every text
  // is an error: one without its unknown token, or whose post-processor drops or repeats the text.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Open(const TokenizerFiles& files);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Appends the ids and type ids of `text`, or of `text` and `pair`, with the special tokens that
  // the post-processor adds. Returns whether anything was cut. If the pipeline allows, a long text
  // is read only as far as max_tokens needs; the ids are those of the whole text. `offsets`, unless
  // null, is replaced by those of the appended tokens; that takes longer. CANCELLED when stopped,
  // INVALID_ARGUMENT when the normalizer makes a text too long; then nothing is appended.
  // Requires valid UTF-8 and options.max_tokens > added_tokens(pair.has_value()).
  absl::StatusOr<bool> Encode(std::string_view text, std::optional<std::string_view> pair,
                              const EncodeOptions& options, std::vector<int64_t>* ids,
                              std::vector<int64_t>* type_ids,
                              TokenOffsets* offsets = nullptr) const;

  // The vocabulary's entry; empty for an unknown id.
  absl::StatusOr<std::string> TokenOf(int64_t id) const;

  // The text of ids, each within 0..2^32-1; unknown ids are left out. It has at most
  // longest_token() + 1 bytes per id.
  absl::StatusOr<std::string> Decode(std::span<const int64_t> ids, bool skip_special_tokens) const;
  int64_t longest_token() const { return longest_token_; }

  // The number of special tokens that the post-processor adds to a text, or to a pair.
  int64_t added_tokens(bool pair) const { return added_tokens_[pair ? 1 : 0]; }

  // Whether tokenizer.json's own truncation is on the left.
  bool cuts_left() const { return cuts_left_; }

  // One more than the greatest id and type id that the tokenizer can produce from texts without
  // special tokens, by its vocabulary, added tokens or post-processor.
  int64_t id_limit() const { return id_limit_; }
  int64_t type_limit() const { return type_limit_; }

 private:
  explicit Tokenizer(castor_hf_tokenizer* handle) : handle_(handle) {}

  // Constant once it is open.
  castor_hf_tokenizer* const handle_;  // owned
  int64_t id_limit_ = 0;
  int64_t type_limit_ = 0;
  int64_t added_tokens_[2] = {};
  int64_t longest_token_ = 0;
  bool cuts_left_ = false;
};

}  // namespace castor::hf
