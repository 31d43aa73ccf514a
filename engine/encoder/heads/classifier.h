// The head of a classifier: logits and scores of each sequence (a text or a pair) or of each token.
// It computes in float32, whatever the type of the body. Requests may have the body's rows as well.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/head.h"
#include "engine/encoder/heads/head_layout.h"
#include "engine/encoder/heads/pooling.h"
#include "engine/encoder/layers/linear.h"

namespace castor::encoder {

// The function from logits to scores.
enum class Scoring { kSoftmax, kSigmoid, kIdentity };

// A classifier as config.json describes it.
struct ClassifierConfig {
  std::vector<std::string> labels;  // in the order of the logits
  Scoring scoring = Scoring::kSoftmax;
  bool tokens = false;                                    // classifies tokens, not sequences
  ClassifierPooling pooling = ClassifierPooling::kFirst;  // of sequences
  std::optional<int64_t> padding = {};  // with kLast: the last token with another id counts
  double temperature = 1;               // logits are divided by it
};

// Whether a CrossEncoder's activation of this Python name is known.
bool IsServedActivation(std::string_view name);

// Reads labels and scoring of a class for sequences or for tokens, as transformers' pipelines read
// them, or as a CrossEncoder does if `cross_encoder` is set: to the activation, maybe empty, of
// config_sentence_transformers.json. Errors go to the reader.
ClassifierConfig ReadClassifier(ConfigReader& config, bool tokens, const ClassifierNames& names,
                                const std::optional<std::string>& cross_encoder);

// The same for a CrossEncoder that reads the last token's logits: it has one label.
ClassifierConfig ReadLogitScore(ConfigReader& config, const std::string& cross_encoder);

class ClassifierHead final : public Head {
 public:
  ClassifierHead(ClassifierConfig config, HeadTransform transform, Linear out);

  const HeadInfo& info() const override { return info_; }
  HeadActivations activations(int64_t hidden, DType dtype) const override;

  // The logits of all sequences or tokens of a batch are computed together.
  absl::StatusOr<std::vector<at::Tensor>> ReadOut(const HeadInputs& in) const override;

 private:
  at::Tensor RowsOfSequences(const HeadInputs& in) const;  // [sequences, hidden]
  absl::StatusOr<at::Tensor> Logits(const HeadInputs& in) const;
  absl::StatusOr<at::Tensor> Scores(const at::Tensor& logits, RunControl& control) const;

  const ClassifierConfig config_;
  const HeadTransform transform_;
  const Linear out_;
  const PoolingHead rows_;
  HeadInfo info_;  // constant once built
};

}  // namespace castor::encoder
