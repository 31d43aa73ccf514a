// An encoder without files or tensors, for FakeDevice: one id per character of a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/base/error.h"
#include "engine/encoder/model.h"

namespace castor {

// Derive from it for another kind of tokenizer.
class FakeModel : public encoder::Model {
 public:
  explicit FakeModel(std::string name) {
    info_.name = std::move(name);
    info_.hidden_size = 1;
    info_.max_tokens = 512;
    info_.vocabulary_size = 1000;
    info_.kernels = {KernelName::kVanilla};
  }

  const ModelInfo& info() const override { return info_; }

  absl::Status CheckInput(const EncodeRequest&, int64_t, int64_t) const override {
    return absl::OkStatus();
  }

  int64_t EstimateTokens(const EncodeRequest& request) const override {
    const auto* tokens = std::get_if<TokenInput>(&request.input);
    return tokens != nullptr ? static_cast<int64_t>(tokens->ids.size()) : 1000;
  }

  absl::StatusOr<bool> TokenizeSome(const EncodeRequest&, const encoder::Slice&,
                                    Tokenized*) const override {
    return MakeError(Reason::kInternal, "it has no tokenizer");
  }
  int64_t EstimateTokenizedBytes(const EncodeRequest&) const override { return 0; }

  absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const encoder::Slice& slice,
                                   encoder::Prepared* prepared) const override {
    const auto close = [prepared] {
      prepared->cu_seqlens.push_back(static_cast<int32_t>(prepared->ids.size()));
      prepared->truncated.push_back(false);
    };
    if (const auto* texts = std::get_if<TextInput>(&request.input)) {
      int64_t bytes = 0;
      for (size_t i = prepared->sequences(); i < texts->texts.size(); ++i) {
        const std::string_view text = texts->texts[i];
        if (bytes >= slice.bytes) return false;
        bytes += static_cast<int64_t>(text.size());
        if (text == "bad") return InvalidField("texts.texts[0]", "a bad text");
        for (char c : text) prepared->ids.push_back(c);
        close();
      }
    } else {
      prepared->ids = std::get<TokenInput>(request.input).ids;
      close();
    }
    return true;
  }

  const encoder::Network* network() const override { return nullptr; }

 private:
  ModelInfo info_;
};

}  // namespace castor
