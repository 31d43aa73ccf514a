// From an EncodeRequest to token ids: checks, the bound that admission needs, and tokenizing. All
// functions are pure and may run on any thread; none needs the tensor library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

class Model;

// A request's sequences, ready for a batch.
struct Prepared {
  std::vector<int64_t> ids;               // [tokens]; empty when the request brings embeddings
  std::vector<int64_t> type_ids;          // [tokens], or empty: all zero
  std::vector<int32_t> cu_seqlens = {0};  // [sequences + 1], from 0
  std::vector<bool> truncated;            // per sequence: was it cut to the model's length

  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  int64_t tokens() const { return cu_seqlens.back(); }
};

// What Model::info says, for code that must not include model.h.
const ModelInfo& InfoOf(const Model& model);

// Everything that can be checked without tokenizing: counts, lengths, id ranges, shapes, dtypes,
// byte sizes, UTF-8, dimensions. Errors name the field as on the wire. Allocates nothing. Says
// nothing about the kernel: that is engine/attention/resolve.h's.
absl::Status CheckInput(const EncodeRequest& request, const ModelInfo& info, int64_t max_sequences,
                        int64_t max_text_bytes);

// The most tokens that Prepare can produce for the request. Requires that CheckInput passed.
int64_t EstimateTokens(const EncodeRequest& request, const ModelInfo& info);

// How far PrepareSome goes in one call.
struct Slice {
  int64_t bytes = INT64_MAX;  // of text: what is reached by these is finished

  // Asked between texts, and between the parts of a long one, unless empty: true, and the rest is
  // of no use any more. Must not throw.
  std::function<bool()> stop = {};
};

// Tokenizes texts, or cuts what is given as tokens or embeddings, to the model's length. Requires
// that CheckInput passed. With `truncate` off a sequence that is too long is an INVALID_FIELD.
//
// Goes on where `prepared`, at first a Prepared{}, ends. True: all is done; false: call again.
// CANCELLED when stopped. After an error `prepared` is of no use.
absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const Model& model,
                                 const Slice& slice, Prepared* prepared);

// All of it at once.
absl::StatusOr<Prepared> Prepare(const EncodeRequest& request, const Model& model);

// Copies the rows that `prepared` keeps of an EmbeddingInput to `out`, [prepared.tokens(), hidden]
// in the input's dtype. INVALID_FIELD when they lie in a file that does not hold them any more.
absl::Status CopyEmbeddings(const EmbeddingInput& input, const Prepared& prepared, std::byte* out);

}  // namespace castor::encoder
