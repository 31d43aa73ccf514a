// The head of a multi-vector model, such as ColBERT: the rows of all tokens, projected to few
// dimensions by dense layers. It does not pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/head.h"

namespace castor::encoder {

class TokenProjectionHead final : public Head {
 public:
  // Without layers the body's rows are the answer's.
  TokenProjectionHead(DenseStack dense, bool normalize)
      : info_{.outputs = {EncodeOutput::kTokenEmbeddings},
              .normalize = normalize,
              .token_size = dense.out()},
        dense_(std::move(dense)) {}

  const HeadInfo& info() const override { return info_; }
  HeadActivations activations(int64_t hidden, DType dtype) const override;
  absl::StatusOr<std::vector<at::Tensor>> ReadOut(const HeadInputs& in) const override;

 private:
  const HeadInfo info_;
  const DenseStack dense_;
};

}  // namespace castor::encoder
