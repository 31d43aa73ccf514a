// A model that was loaded from files: a tokenizer and a network. LoadModel
// (engine/encoder/directory/load.h) makes it.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/text/pair_template.h"
#include "engine/hf/tokenizer.h"

namespace castor::encoder {

class TextModel final : public Model {
 public:
  // `pairs`: the text around them, if there is one.
  TextModel(ModelInfo info, std::unique_ptr<hf::Tokenizer> tokenizer,
            std::optional<PairTemplate> pairs, Network network);

  // Call before the model is shared.
  void set_int8(const Int8Fidelity& fidelity) { info_.int8 = fidelity; }
  void set_lookup(std::shared_ptr<const TextModel> lookup) {
    info_.parameters += lookup->info().parameters;
    info_.weight_bytes += lookup->info().weight_bytes;
    lookup_ = std::move(lookup);
  }

  const ModelInfo& info() const override { return info_; }
  absl::Status CheckInput(const EncodeRequest& request, int64_t max_sequences,
                          int64_t max_text_bytes) const override;
  int64_t EstimateTokens(const EncodeRequest& request) const override;
  absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const Slice& slice,
                                   Prepared* prepared) const override;
  absl::StatusOr<bool> TokenizeSome(const EncodeRequest& request, const Slice& slice,
                                    Tokenized* tokenized) const override;
  int64_t EstimateTokenizedBytes(const EncodeRequest& request) const override;
  std::vector<AttentionLayers> attention(const Kernel& kernel) const override;
  Activations activations() const override { return activations_; }
  const Network* network() const override { return &network_; }
  const Model* lookup() const override { return lookup_.get(); }

 private:
  const InputRules& rules() const { return network_.rules(); }

  ModelInfo info_;
  const std::unique_ptr<hf::Tokenizer> tokenizer_;
  const std::optional<PairTemplate> pairs_;
  const Network network_;
  const Activations activations_;
  std::shared_ptr<const TextModel> lookup_;
};

}  // namespace castor::encoder
