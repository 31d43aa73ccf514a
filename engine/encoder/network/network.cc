#include "engine/encoder/network/network.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <utility>
#include <vector>

#include "engine/attention/scalar_type.h"
#include "engine/encoder/heads/head.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/body.h"

namespace castor::encoder {

Network::Network(InputRules rules, std::unique_ptr<Body> body, std::unique_ptr<Head> head,
                 at::Device device, AttentionFn attention)
    : rules_(std::move(rules)),
      body_(std::move(body)),
      head_(std::move(head)),
      device_(device),
      attention_(std::move(attention)) {}

Network::~Network() = default;
Network::Network(Network&&) noexcept = default;

Activations Network::activations(DType dtype) const {
  constexpr int64_t kIndex = sizeof(int64_t);
  return {
      .body = body_->activations(),
      .head = head_->activations(body_->info().hidden, dtype),
      .indices = {
          .token = 3 * kIndex + int64_t{sizeof(float)}, .sequence = kIndex, .span = 2 * kIndex}};
}

absl::StatusOr<std::vector<at::Tensor>> Network::Forward(const Batch& batch, const Packing& packing,
                                                         const Inputs& inputs,
                                                         RunControl& control) const {
  const c10::InferenceMode inference;
  const int64_t tokens = packing.tokens();
  at::Tensor key_bias;
  if (!packing.key_bias.empty()) {  // only read; from_blob takes no const pointer
    key_bias = at::from_blob(const_cast<float*>(packing.key_bias.data()), {tokens}, at::kFloat)
                   .to(inputs.indices.device());
  }
  const BodyInputs in{
      .ids = inputs.indices.narrow(0, 0, tokens),
      .type_ids = inputs.indices.narrow(0, tokens, tokens),
      .positions = inputs.indices.narrow(0, 2 * tokens, tokens),
      .key_bias = key_bias,
      .batch = batch,
      .packing = packing,
      .inputs = inputs,
      .attention = attention_,
      .control = control,
  };
  absl::StatusOr<at::Tensor> rows = body_->Forward(in);
  if (!rows.ok()) return rows.status();
  const int64_t first_offset = 3 * tokens, offsets = packing.sequences() + 1;
  return head_->ReadOut(
      {.rows = *rows,
       .ids = in.ids,
       .offsets = inputs.indices.narrow(0, first_offset, offsets),
       .spans = inputs.indices.narrow(0, first_offset + offsets, 2 * packing.spans)
                    .view({2, packing.spans}),
       .batch = batch,
       .packing = packing,
       .control = control});
}

absl::Status RunOnHost(const Batch& batch, RunControl& control) {
  const c10::InferenceMode inference;
  const Network& network = *batch.model->network();
  const Packing packing = Pack(batch);
  std::vector<int64_t> indices(packing.index_elements());
  WriteIndices(batch, packing, network.rules(), indices.data());
  Inputs inputs{
      .indices = at::from_blob(indices.data(), {packing.index_elements()}, at::kLong),
      .embeddings = std::vector<at::Tensor>(batch.items.size()),
  };
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const BatchItem& item = batch.items[i];
    if (item.embeddings == nullptr || item.repeats) continue;
    // Only read; from_blob takes no const pointer.
    inputs.embeddings[i] = at::from_blob(const_cast<std::byte*>(item.embeddings),
                                         {item.tokens(), batch.model->info().hidden_size},
                                         attention::ScalarTypeOf(item.embeddings_dtype));
  }
  absl::StatusOr<std::vector<at::Tensor>> outputs =
      network.Forward(batch, packing, inputs, control);
  if (!outputs.ok()) return outputs.status();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const at::Tensor& output = (*outputs)[i];
    std::memcpy(batch.items[i].output, output.const_data_ptr(), output.nbytes());
  }
  return absl::OkStatus();
}

}  // namespace castor::encoder
