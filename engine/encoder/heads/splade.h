// The head of a SPLADE model: weights for the words of the vocabulary, most of them zero, from the
// logits of a masked language model. Logits have the body's type. Requests may have the body's rows
// as well.
//
// [tokens, vocabulary] is never in memory: tokens are processed in steps, and only the weights
// collected so far are kept, [sequences, vocabulary].
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/head.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/layers/linear.h"

namespace castor::encoder {

// A logit x becomes log(1 + relu(x)), or with `twice` log(1 + log(1 + relu(x))). A sequence's
// weight is the greatest of its tokens, or their sum.
struct SpladeConfig {
  bool sum = false;
  bool twice = false;
};

class SpladeHead final : public Head {
 public:
  SpladeHead(SpladeConfig config, HeadTransform transform, Linear decoder);

  const HeadInfo& info() const override { return info_; }
  HeadActivations activations(int64_t hidden, DType dtype) const override;

  // A sequence's bits do not depend on the rest of the batch.
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

// The heads of BGE-M3: pooled rows, projected token rows, and SPARSE, which weighs the text's own
// token ids: an id's weight is its greatest in the sequence. Token rows include the sequence's
// first, which FlagEmbedding leaves out.

// XLM-RoBERTa's first ids, <s>, <pad>, </s> and <unk>, have no weight.
inline constexpr int64_t kUnweighedIds = 4;

class LexicalHead final : public Head {
 public:
  // `pooling` and `normalize`: the defaults of requests. `weights` maps a row to its weight.
  LexicalHead(Pooling pooling, bool normalize, DenseStack of_tokens, DenseStack weights,
              int64_t vocabulary);

  // A SparseStaticEmbedding's, whose body's rows are the weights of tokens.
  explicit LexicalHead(int64_t vocabulary);

  const HeadInfo& info() const override { return info_; }
  HeadActivations activations(int64_t hidden, DType dtype) const override;
  absl::StatusOr<std::vector<at::Tensor>> ReadOut(const HeadInputs& in) const override;

 private:
  const PoolingHead rows_;
  const DenseStack weights_;
  const int64_t vocabulary_;
  const int64_t unweighed_ = kUnweighedIds;  // the first ids
  HeadInfo info_;                            // constant once built
};

}  // namespace castor::encoder
