// The head of an embedding model: pools, cuts and normalises the last layer's rows as requests ask
// for. It has no weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/encoder/head.h"

namespace castor::encoder {

class PoolingHead final : public Head {
 public:
  // The defaults for requests that do not say.
  PoolingHead(Pooling pooling, bool normalize)
      : info_{.outputs = {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings},
              .pooling = pooling,
              .normalize = normalize} {}

  const HeadInfo& info() const override { return info_; }
  HeadActivations activations(int64_t hidden, DType dtype) const override;

  // Takes rows in any floating dtype. Sums are in float32. Items that want the same share the work;
  // no item changes another's result.
  std::vector<at::Tensor> ReadOut(const HeadInputs& in) const override;

 private:
  const HeadInfo info_;
};

}  // namespace castor::encoder
