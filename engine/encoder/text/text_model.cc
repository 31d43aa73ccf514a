#include "engine/encoder/text/text_model.h"

#include <utility>

#include "engine/encoder/network/body.h"
#include "engine/encoder/text/tokenize.h"

namespace castor::encoder {

TextModel::TextModel(ModelInfo info, std::unique_ptr<hf::Tokenizer> tokenizer, Network network)
    : info_(std::move(info)),
      tokenizer_(std::move(tokenizer)),
      network_(std::move(network)),
      activations_(network_.activations(info_.dtype)) {}

std::vector<AttentionLayers> TextModel::attention(const Kernel& kernel) const {
  return AttentionLayersOf(network_.body().info(), info_.dtype, kernel);
}

absl::Status TextModel::CheckInput(const EncodeRequest& request, int64_t max_sequences,
                                   int64_t max_text_bytes) const {
  return encoder::CheckInput(request, info_, max_sequences, max_text_bytes);
}

int64_t TextModel::EstimateTokens(const EncodeRequest& request) const {
  return encoder::EstimateTokens(request, network_.rules(), info_.prompts);
}

absl::StatusOr<bool> TextModel::PrepareSome(const EncodeRequest& request, const Slice& slice,
                                            Prepared* prepared) const {
  return encoder::PrepareSome(request, network_.rules(), info_.prompts, *tokenizer_, slice,
                              prepared);
}

absl::StatusOr<bool> TextModel::TokenizeSome(const EncodeRequest& request, const Slice& slice,
                                             Tokenized* tokenized) const {
  return encoder::TokenizeSome(request, network_.rules(), info_.prompts, *tokenizer_, slice,
                               tokenized);
}

int64_t TextModel::EstimateTokenizedBytes(const EncodeRequest& request) const {
  return encoder::EstimateTokenizedBytes(request, network_.rules(), info_.prompts, *tokenizer_);
}

}  // namespace castor::encoder
