#include "engine/encoder/model.h"

#include <c10/core/InferenceMode.h>

#include <utility>

#include "engine/encoder/body.h"
#include "engine/encoder/pooling.h"

namespace castor::encoder {

Model::Model(ModelInfo info, at::Device device, std::unique_ptr<hf::Tokenizer> tokenizer,
             std::unique_ptr<Body> body, AttentionFn attention)
    : info_(std::move(info)),
      device_(device),
      tokenizer_(std::move(tokenizer)),
      body_(std::move(body)),
      attention_(std::move(attention)) {}

Model::~Model() = default;

absl::StatusOr<std::vector<at::Tensor>> Model::Forward(const Batch& batch, const Packing& packing,
                                                       const Inputs& inputs) const {
  const c10::InferenceMode inference;
  const int64_t tokens = packing.tokens();
  const BodyInputs in{
      .ids = inputs.indices.narrow(0, 0, tokens),
      .type_ids = inputs.indices.narrow(0, tokens, tokens),
      .positions = inputs.indices.narrow(0, 2 * tokens, tokens),
      .batch = batch,
      .packing = packing,
      .inputs = inputs,
      .attention = attention_,
  };
  absl::StatusOr<at::Tensor> rows = body_->Forward(in);
  if (!rows.ok()) return rows.status();
  const at::Tensor offsets = inputs.indices.narrow(0, 3 * tokens, packing.sequences() + 1);
  return ReadOut(*rows, offsets, batch, packing);
}

}  // namespace castor::encoder
