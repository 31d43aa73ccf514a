// Spans: a request gives ranges of its sequences in characters, bytes or tokens; these functions
// find the tokens that are pooled together.
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

// The most ranges of a request, and the most rows that ranges may cover together, per token and
// range of the request. Pooling takes time of its own, which is predicted (encoder_costs.h).
inline constexpr int64_t kMostSpans = int64_t{1} << 16;
inline constexpr int64_t kMostSpanRows = 64;

// Checks everything that needs no tokenizer. `pools`: POOLED is among the outputs. Requires that
// the input was checked. Allocates nothing.
absl::Status CheckSpans(const EncodeRequest& request, bool pools);

// The unit of the request's ranges.
Spans::Unit UnitOf(const EncodeRequest& request);

// Whether characters or bytes must be found among tokens.
bool NeedsOffsets(const EncodeRequest& request);

// Call before the first sequence is prepared. Requires that CheckSpans passed.
void BeginSpans(const Spans& spans, Prepared* prepared);

// Fills in the ranges of one text or pair with these tokens. `prefix`: the bytes of the prompt
// before the text. INVALID_FIELD for a range that ends beyond the text.
absl::Status PlaceOnText(const Spans& spans, const TextInput& input, size_t sequence, size_t prefix,
                         const hf::TokenOffsets& offsets, Prepared* prepared);

// Fills in the ranges, in tokens, of the sequence that was prepared last. `dropped` tokens were cut
// off on its left. INVALID_FIELD for a range that ends beyond the sequence, unless it was cut: then
// its length before the cut is unknown.
absl::Status PlaceOnTokens(const Spans& spans, size_t sequence, int64_t dropped,
                           Prepared* prepared);

// Call after the last sequence. INVALID_FIELD if the ranges cover too many rows.
absl::Status EndSpans(Prepared* prepared);

}  // namespace castor::encoder
