// From an EncodeRequest to token ids: checks, the bound that admission needs, and tokenizing, given
// a model's info, input rules, prompts and tokenizer. The functions have no state and may run on
// any thread; none needs the tensor library. engine/encoder/model.h documents them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/encoder/text/check_input.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::hf {
class Tokenizer;
}  // namespace castor::hf

namespace castor::encoder {

// A request's sequences, ready for a batch.
struct Prepared {
  std::vector<int64_t> ids;               // [tokens]; empty when the request brings embeddings
  std::vector<int64_t> type_ids;          // [tokens], or empty: all zero
  std::vector<int32_t> cu_seqlens = {0};  // [sequences + 1], from 0
  std::vector<bool> truncated;            // per sequence: was it cut
  bool cut_left = false;                  // where; of token ids and embeddings
  int32_t left_out = 0;                   // a prompt's tokens that are not pooled
  std::vector<PooledSpan> spans;          // one per range of the request's spans
  std::vector<uint32_t> span_order;  // their indices in order of sequence, while it is prepared

  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  int64_t tokens() const { return cu_seqlens.back(); }
};

// How far PrepareSome goes in one call.
struct Slice {
  int64_t bytes = INT64_MAX;  // of text; checked between texts, so the last one is finished

  // Called between texts, and between the parts of a long one, unless empty. True: the rest is no
  // longer needed. Must not throw.
  std::function<bool()> stop = {};
};

// Model::CheckInput.
absl::Status CheckInput(const EncodeRequest& request, const ModelInfo& info, int64_t max_sequences,
                        int64_t max_text_bytes);

// Model::EstimateTokens.
int64_t EstimateTokens(const EncodeRequest& request, const InputRules& rules,
                       const Prompts& prompts);

// Model::PrepareSome.
absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const InputRules& rules,
                                 const Prompts& prompts, const hf::Tokenizer& tokenizer,
                                 const Slice& slice, Prepared* prepared);

// The most tokens of a sequence: as the request says, else its prompt, else the model, which is the
// limit of both.
int64_t MaxTokens(const EncodeRequest& request, const InputRules& rules,
                  const Prompt* prompt = nullptr);

bool CutsLeft(const EncodeRequest& request, const InputRules& rules);

// The size of a text and its pair in bytes.
int64_t BytesOf(const TextInput& input, size_t index);

// The given lengths; if there are none, one sequence of all tokens.
std::vector<int64_t> LengthsOf(const std::vector<int64_t>& lengths, int64_t tokens);

// Copies the rows that `prepared` keeps of an EmbeddingInput to `out`, [prepared.tokens(), hidden]
// in the input's dtype. INVALID_FIELD when they are in a file that no longer holds them.
absl::Status CopyEmbeddings(const EmbeddingInput& input, const Prepared& prepared, std::byte* out);

}  // namespace castor::encoder
