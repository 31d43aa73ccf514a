// Spans: from ranges of a request's sequences, in characters, bytes or tokens, to the tokens that
// are pooled together.
//
// Functions without state; any thread. No tensors here: engine/encoder/heads/pooling.h pools.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/encoder/text/prepare.h"
#include "engine/hf/tokenizer.h"
#include "engine/request.h"

namespace castor::encoder {

// The most ranges of a request, and the most rows that they cover together for each token of the
// request and each range. Pooling them takes time of its own, which is predicted (encoder_costs.h).
inline constexpr int64_t kMostSpans = int64_t{1} << 16;
inline constexpr int64_t kMostSpanRows = 64;

// Everything that can be checked without tokenizing, of a request. `pools`: POOLED is
// among its outputs. Requires that the input was checked. Allocates nothing.
absl::Status CheckSpans(const EncodeRequest& request, bool pools);

// What the request gives its ranges in.
Spans::Unit UnitOf(const EncodeRequest& request);

// Whether characters or bytes have to be found among tokens.
bool NeedsOffsets(const EncodeRequest& request);

// Before the first sequence is prepared. Requires that CheckSpans passed.
void BeginSpans(const Spans& spans, Prepared* prepared);

// Fills in the ranges of one text or pair of which these are the tokens. `prefix`: the bytes that
// stood before the text. INVALID_FIELD for a range that ends beyond the text.
absl::Status PlaceOnText(const Spans& spans, const TextInput& input, size_t sequence, size_t prefix,
                         const hf::TokenOffsets& offsets, Prepared* prepared);

// Fills in the ranges of the sequence that was prepared last, given in tokens, of which `dropped`
// were cut off on the left. A cut text may have had any number. INVALID_FIELD for a range that ends
// beyond a sequence that was not cut.
absl::Status PlaceOnTokens(const Spans& spans, size_t sequence, int64_t dropped,
                           Prepared* prepared);

// After the last sequence. INVALID_FIELD for ranges that cover too much.
absl::Status EndSpans(Prepared* prepared);

}  // namespace castor::encoder
