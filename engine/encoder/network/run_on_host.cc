#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <vector>

#include "engine/attention/scalar_type.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/network.h"

namespace castor::encoder {
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
