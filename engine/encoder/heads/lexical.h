// The heads of BGE-M3: pooled rows, rows of tokens behind a projection, and SPARSE, in which a text
// weighs its own tokens: each the greatest weight that it has where it stands. The first of a
// sequence, which FlagEmbedding leaves out of the rows of tokens, is among them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/head.h"
#include "engine/encoder/heads/pooling.h"

namespace castor::encoder {

// XLM-RoBERTa's <s>, <pad>, </s> and <unk> come first, and weigh nothing.
inline constexpr int64_t kUnweighedIds = 4;

class LexicalHead final : public Head {
 public:
  // The defaults for requests that do not say; `weights` gives a row its weight.
  LexicalHead(Pooling pooling, bool normalize, DenseStack of_tokens, DenseStack weights,
              int64_t vocabulary);

  const HeadInfo& info() const override { return info_; }
  HeadActivations activations(int64_t hidden, DType dtype) const override;
  absl::StatusOr<std::vector<at::Tensor>> ReadOut(const HeadInputs& in) const override;

 private:
  const PoolingHead rows_;
  const DenseStack weights_;
  const int64_t vocabulary_;
  HeadInfo info_;  // constant once built
};

}  // namespace castor::encoder
