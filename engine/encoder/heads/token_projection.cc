#include "engine/encoder/heads/token_projection.h"

#include "engine/encoder/heads/head_steps.h"
#include "engine/encoder/heads/pooling.h"

namespace castor::encoder {

HeadActivations TokenProjectionHead::activations(int64_t hidden, DType /*dtype*/) const {
  using attention::Count;
  const Count projected = Count(dense_.empty() ? hidden : dense_.out()) * int64_t{sizeof(float)};
  HeadActivations bytes;
  // Projected rows, cut, and normalised, with the norms.
  bytes.tokens.token = dense_.row_bytes() + 3 * projected + 2 * int64_t{sizeof(float)};
  bytes.batch = kMostHeadRows * Count(hidden) * int64_t{sizeof(float)};
  return bytes;
}

absl::StatusOr<std::vector<at::Tensor>> TokenProjectionHead::ReadOut(const HeadInputs& in) const {
  absl::StatusOr<at::Tensor> rows = dense_(in.rows, in.control);
  if (!rows.ok()) return rows.status();
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < in.batch.items.size(); ++i) {
    const BatchItem& item = in.batch.items[i];
    const at::Tensor own = rows->narrow(0, in.packing.first_token[i], item.tokens())
                               .narrow(1, 0, item.dimensions)
                               .to(at::kFloat);
    outputs.push_back(item.normalize ? Normalized(own) : own.contiguous());
  }
  return outputs;
}

}  // namespace castor::encoder
