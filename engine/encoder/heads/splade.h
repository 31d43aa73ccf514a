// The head of a SPLADE model: a weight for each word of the vocabulary, from the logits of a masked
// language model, of which most are to be zero. Weights and logits are of the body's type. Requests
// may have the body's rows as well.
//
// [tokens, vocabulary] is never in memory: tokens go by in steps, and what a sequence has collected
// is kept, [sequences, vocabulary].
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/head.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/layers/linear.h"

namespace castor::encoder {

// Of a logit: log(1 + relu(x)), or with `twice` log(1 + log(1 + relu(x))). Of a sequence: the
// greatest, or the sum, over its tokens.
struct SpladeConfig {
  bool sum = false;
  bool twice = false;
};

class SpladeHead final : public Head {
 public:
  SpladeHead(SpladeConfig config, HeadTransform transform, Linear decoder);

  const HeadInfo& info() const override { return info_; }
  HeadActivations activations(int64_t hidden, DType dtype) const override;

  // Bits of a sequence do not depend on what else is in the batch.
  absl::StatusOr<std::vector<at::Tensor>> ReadOut(const HeadInputs& in) const override;

 private:
  struct Part;

  std::vector<Part> PartsOf(const HeadInputs& in, int64_t step) const;
  absl::StatusOr<at::Tensor> Weights(const HeadInputs& in, int64_t sequences) const;

  const SpladeConfig config_;
  const HeadTransform transform_;
  const Linear decoder_;
  const PoolingHead rows_;
  HeadInfo info_;  // constant once built
};

// The heads of BGE-M3: pooled rows, rows of tokens behind a projection, and SPARSE, in which a text
// weighs its own tokens: each the greatest weight that it has where it stands. The first of a
// sequence, which FlagEmbedding leaves out of the rows of tokens, is among them.

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
