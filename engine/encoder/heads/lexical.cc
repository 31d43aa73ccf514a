#include "engine/encoder/heads/lexical.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "engine/encoder/heads/head_steps.h"

namespace castor::encoder {

LexicalHead::LexicalHead(Pooling pooling, bool normalize, DenseStack of_tokens, DenseStack weights,
                         int64_t vocabulary)
    : rows_({pooling}, /*hidden=*/0, normalize, /*dense=*/{}, std::move(of_tokens)),
      weights_(std::move(weights)),
      vocabulary_(vocabulary),
      info_(rows_.info()) {
  info_.outputs = {EncodeOutput::kPooled, EncodeOutput::kSparse, EncodeOutput::kTokenEmbeddings};
  info_.lexical = true;
}

HeadActivations LexicalHead::activations(int64_t hidden, DType dtype) const {
  constexpr int64_t kFloat = sizeof(float);
  HeadActivations bytes = rows_.activations(hidden, dtype);
  // Others in the batch may want pooled rows, which all sequences then have.
  bytes.sparse = bytes.pooled;
  // All tokens get weights; they are scattered by their sequence and id.
  bytes.sparse.token += weights_.row_bytes() + 2 * kFloat + 3 * int64_t{sizeof(int64_t)};
  bytes.sparse.sequence += attention::Count(vocabulary_) * kFloat + 2 * int64_t{sizeof(int64_t)};
  bytes.batch = std::max(bytes.batch, kMostHeadRows * attention::Count(hidden) * kFloat);
  return bytes;
}

absl::StatusOr<std::vector<at::Tensor>> LexicalHead::ReadOut(const HeadInputs& in) const {
  absl::StatusOr<std::vector<at::Tensor>> outputs = rows_.ReadOut(in);
  if (!outputs.ok()) return outputs;
  at::Tensor weights;
  for (size_t i = 0; i < in.batch.items.size(); ++i) {
    const BatchItem& item = in.batch.items[i];
    if (item.output_kind != EncodeOutput::kSparse) continue;
    if (!weights.defined()) {
      absl::StatusOr<at::Tensor> computed = weights_(in.rows, in.control);
      if (!computed.ok()) return computed.status();
      weights = computed->relu().squeeze(1);
    }
    const int64_t first = in.packing.first_token[i], tokens = item.tokens();
    const int64_t sequences = item.sequences();
    const at::Tensor offsets =
        in.offsets.narrow(0, in.packing.first_sequence[i], sequences + 1).diff();
    // Where a token's weight goes: its sequence's row, its id's column.
    const at::Tensor places = at::repeat_interleave(at::arange(sequences, offsets.options()),
                                                    offsets, /*dim=*/0, /*output_size=*/tokens)
                                  .mul_(vocabulary_)
                                  .add_(in.ids.narrow(0, first, tokens));
    at::Tensor& rows = (*outputs)[i];
    rows = at::zeros({sequences * vocabulary_}, weights.options());
    rows.scatter_reduce_(0, places, weights.narrow(0, first, tokens), "amax");
    rows = rows.view({sequences, vocabulary_});
    rows.narrow(1, 0, kUnweighedIds).zero_();
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
  }
  return outputs;
}

}  // namespace castor::encoder
