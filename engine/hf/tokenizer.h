// A model directory's tokenizer, by the reference implementation (the Rust crate `tokenizers`).
//
// Immutable and thread-safe. The file's own padding and truncation settings are ignored.
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

// Of a tokenizer.json: ten times the largest in use.
inline constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// Whether `text` is UTF-8 as Rust and protobuf define it: no overlong forms, no surrogates.
bool IsUtf8(std::string_view text);

// What a tokenizer is made of. castor_hf.h documents it.
struct TokenizerFiles {
  std::optional<std::string> tokenizer;   // tokenizer.json
  std::optional<std::string> vocabulary;  // vocab.txt or vocab.json
  std::optional<std::string> merges;      // merges.txt
  std::string settings;                   // JSON: Settings of src/assemble.rs
};

struct EncodeOptions {
  // Of the result, special tokens included. Longer input is cut, the longer text of a pair first:
  // on the right, unless cut_left.
  int64_t max_tokens = 512;
  bool cut_left = false;

  // Whether markers such as "[SEP]" in the text become the special tokens of that name. Off, they
  // are plain text.
  bool allow_special_tokens = false;

  // Whether the post-processor adds its special tokens.
  bool add_special_tokens = true;

  // Whether offsets leave out the whitespace at either end of a token.
  bool trim_offsets = true;

  // If set, called between the parts of a long text: true ends the work. Must not throw.
  std::function<bool()> stop = {};
};

// Which part of its text each token of one encoding was made of.
struct TokenOffsets {
  struct Bytes {  // of UTF-8
    size_t begin = 0;
    size_t end = 0;
    bool operator==(const Bytes&) const = default;
  };
  struct Text {
    size_t begin = 0;  // its tokens among all
    size_t end = 0;
    size_t cut = SIZE_MAX;  // the byte from which on tokens were cut off, if any were
    size_t head = 0;        // the byte up to which tokens were cut off
  };

  // One per token; trimmed (EncodeOptions) of whitespace alone, and of special tokens that the
  // post-processor added, nothing. A character that became several tokens is in each.
  std::vector<Bytes> bytes;
  Text texts[2];  // the text and its pair
};

class Tokenizer {
 public:
  // Makes the tokenizer of `files`. Errors name the file. A tokenizer that could not answer for
  // every text is one: without its unknown token, or with a post-processor that drops or repeats
  // the text.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Open(const TokenizerFiles& files);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Appends the ids and type ids of `text`, or of `text` and `pair`, with the special tokens that
  // the file's post-processor adds; returns whether anything was cut. Texts must be valid UTF-8.
  // Where the pipeline allows, a long text is read only as far as max_tokens needs; the ids are
  // those of the whole text. CANCELLED when stopped, INVALID_ARGUMENT when the normalizer makes too
  // much of a text, with nothing appended. Requires
  // options.max_tokens > added_tokens(pair.has_value()). `offsets`, unless null, is replaced by
  // what is known of the tokens appended; that takes longer.
  absl::StatusOr<bool> Encode(std::string_view text, std::optional<std::string_view> pair,
                              const EncodeOptions& options, std::vector<int64_t>* ids,
                              std::vector<int64_t>* type_ids,
                              TokenOffsets* offsets = nullptr) const;

  // The vocabulary's entry; empty of an unknown id.
  absl::StatusOr<std::string> TokenOf(int64_t id) const;

  // The text of ids, each within 0..2^32-1; unknown ones are left out. It has at most
  // longest_token() + 1 bytes for each.
  absl::StatusOr<std::string> Decode(std::span<const int64_t> ids, bool skip_special_tokens) const;
  int64_t longest_token() const { return longest_token_; }

  // How many special tokens the post-processor adds to a text, or to a pair.
  int64_t added_tokens(bool pair) const { return added_tokens_[pair ? 1 : 0]; }

  // Whether tokenizer.json's own truncation is on the left.
  bool cuts_left() const { return cuts_left_; }

  // One more than the greatest id and type id that the tokenizer can produce of texts without
  // special tokens, by its vocabulary, its added tokens or its post-processor.
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
