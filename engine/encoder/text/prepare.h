// From an EncodeRequest to token ids: the rules, the result, and functions that checks, tokenizing
// and staging share. TextModel (text_model.h) does the work, in check_input.cc, prepare.cc and
// tokenize.cc.
//
// Values, and functions without state for any thread. Includes no tensor library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

// The tokens that a late-interaction model adds to queries and leaves out of answers; other models
// have none. A text with the prompt "query" is a query, any other a document.
struct LateInteraction {
  int64_t padding = 0;           // the id that pads queries to Prompt::padded_to
  std::vector<int64_t> skipped;  // ids of tokens without a row, sorted
  bool skips_queries = false;    // whether these have no row in queries,
  bool skips_documents = false;  // and in documents
};

// The rules that turn texts and ids into the rows of a model's body. One of the three parts of a
// model, with its body (body.h) and its head (head.h).
struct InputRules {
  int64_t vocabulary = 0;      // ids are below it
  int64_t types = 1;           // type ids are below it; with one type they are all zero
  bool text_types = true;      // texts have the tokenizer's type ids; false: all are zero
  bool special_tokens = true;  // texts get those of the tokenizer's post-processor
  bool cut_left = false;       // where longer sequences are cut, unless a request says
  int64_t max_tokens = 0;      // of one sequence, special tokens included
  int64_t first_position = 0;  // of every sequence's first token: 0 for BERT, 2 for RoBERTa
  // The id of padding, if its tokens take the position before the first one and move no other
  // token: RoBERTa counts positions so, in texts that hold its padding token.
  std::optional<int64_t> padding = {};
  LateInteraction late = {};
};

// A request's sequences, ready for a batch.
struct Prepared {
  std::vector<int64_t> ids;               // [tokens]; empty when the request brings embeddings
  std::vector<int64_t> type_ids;          // [tokens], or empty: all zero
  std::vector<int32_t> cu_seqlens = {0};  // [sequences + 1], from 0
  std::vector<bool> truncated;            // per sequence: whether it was cut
  bool cut_left = false;                  // the side on which ids and embeddings were cut
  int32_t left_out = 0;                   // tokens of the prompt, which are not pooled
  std::vector<PooledSpan> spans;          // one per range of the request
  std::vector<uint32_t> span_order;       // indices of spans by sequence, while preparing
  std::vector<int64_t> hidden;            // tokens that no token attends to
  std::vector<int64_t> kept;              // tokens with a row, unless `kept_seqlens` is empty: all
  std::vector<int32_t> kept_seqlens;      // their offsets, as cu_seqlens

  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  int64_t tokens() const { return cu_seqlens.back(); }
};

// How much PrepareSome and TokenizeSome do in one call.
struct Slice {
  int64_t bytes = INT64_MAX;  // of text; checked between texts, so a text is never left half done

  // If set, called between texts and between the parts of a long text. True: the rest is no longer
  // needed. Must not throw.
  std::function<bool()> stop = {};
};

// The most tokens of a sequence: the request's limit, else its prompt's, and never more than the
// model's.
int64_t MaxTokens(const EncodeRequest& request, const InputRules& rules,
                  const Prompt* prompt = nullptr);

bool CutsLeft(const EncodeRequest& request, const InputRules& rules);

// The size of a text and its pair in bytes.
int64_t BytesOf(const TextInput& input, size_t index);

// The given lengths; without any, one sequence of all tokens.
std::vector<int64_t> LengthsOf(const std::vector<int64_t>& lengths, int64_t tokens);

// Copies those rows of the input that `prepared` keeps to `out`, [prepared.tokens(), hidden] in the
// input's dtype. INVALID_FIELD when their file no longer holds them.
absl::Status CopyEmbeddings(const EmbeddingInput& input, const Prepared& prepared, std::byte* out);

}  // namespace castor::encoder
