// Tokenizing and detokenizing for their own sake, without a pass through the model. Functions
// without state; any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/encoder/text/check_input.h"
#include "engine/encoder/text/prepare.h"
#include "engine/engine.h"
#include "engine/hf/tokenizer.h"
#include "engine/request.h"

namespace castor::encoder {

// The most bytes that the answer can have. Requires that CheckInput passed.
int64_t EstimateTokenizedBytes(const EncodeRequest& request, const InputRules& rules,
                               const Prompts& prompts, const hf::Tokenizer& tokenizer);

// Continues where `out`, at first empty, ends. True: all is done; false: call again. CANCELLED when
// stopped; INVALID_FIELD of a text that makes too much.
absl::StatusOr<bool> TokenizeSome(const EncodeRequest& request, const InputRules& rules,
                                  const Prompts& prompts, const hf::Tokenizer& tokenizer,
                                  const Slice& slice, Tokenized* out);

}  // namespace castor::encoder
