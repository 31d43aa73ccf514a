#include "engine/encoder/text/text_model.h"

#include <utility>

#include "engine/encoder/network/body.h"

namespace castor::encoder {

TextModel::TextModel(ModelInfo info, std::unique_ptr<hf::Tokenizer> tokenizer, Network network)
    : info_(std::move(info)),
      tokenizer_(std::move(tokenizer)),
      network_(std::move(network)),
      activations_(network_.activations(info_.dtype)) {}

std::vector<AttentionLayers> TextModel::attention(const Kernel& kernel) const {
  return AttentionLayersOf(network_.body().info(), info_.dtype, kernel);
}

}  // namespace castor::encoder
