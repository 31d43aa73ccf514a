#include "engine/encoder/heads/splade.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/pooling.h"

namespace castor::encoder {
namespace {

// The bytes of a step's logits.
constexpr int64_t kLogitsBytes = int64_t{32} << 20;

int64_t RowsOfLogits(int64_t vocabulary) {
  return std::clamp<int64_t>(kLogitsBytes / (vocabulary * int64_t{sizeof(float)}), 1,
                             kMostHeadRows);
}

// In place.
void Squash(bool twice, const at::Tensor& logits) {
  logits.relu_().log1p_();
  if (twice) logits.log1p_();
}

}  // namespace

// Tokens of one sequence that a step processes.
struct SpladeHead::Part {
  int64_t row;     // of the result
  int64_t first;   // token of the batch
  int64_t tokens;  // at most a step
  bool begins;     // it is the first part of its sequence
};

SpladeHead::SpladeHead(SpladeConfig config, HeadTransform transform, Linear decoder)
    : config_(config),
      transform_(std::move(transform)),
      decoder_(std::move(decoder)),
      rows_(Pooling::kMean, /*normalize=*/false),
      info_(rows_.info()) {
  info_.outputs = {EncodeOutput::kSparse, EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings};
}

HeadActivations SpladeHead::activations(int64_t hidden, DType dtype) const {
  using kernels::Count;
  constexpr int64_t kFloat = sizeof(float);
  const Count row = Count(hidden) * static_cast<int64_t>(SizeOf(dtype));
  const Count logits = Count(decoder_.out()) * static_cast<int64_t>(SizeOf(dtype));
  const Count in_float = Count(decoder_.out()) * kFloat;
  HeadActivations bytes = rows_.activations(hidden, dtype);
  // If any item of the batch wants pooled rows, all sequences are pooled.
  bytes.sparse = bytes.pooled;
  bytes.sparse.sequence += in_float + 2 * int64_t{sizeof(Part)};
  bytes.sparse.token += 2 * int64_t{sizeof(Part)};  // more than a token's share of its parts
  // A step's rows, the transform's result, logits, logits in float32; and one sequence's weights.
  bytes.batch = RowsOfLogits(decoder_.out()) *
                    (3 * row + logits + (dtype == DType::kFloat32 ? Count(0) : in_float)) +
                in_float;
  return bytes;
}

// Sequences are cut from their own beginning, so that their sums do not depend on each other.
std::vector<SpladeHead::Part> SpladeHead::PartsOf(const HeadInputs& in, int64_t step) const {
  std::vector<Part> parts;
  int64_t row = 0;
  for (size_t i = 0; i < in.batch.items.size(); ++i) {
    const BatchItem& item = in.batch.items[i];
    if (item.output_kind != EncodeOutput::kSparse) continue;
    for (size_t s = 0; s + 1 < item.cu_seqlens.size(); ++s, ++row) {
      for (int64_t t = item.cu_seqlens[s]; t < item.cu_seqlens[s + 1]; t += step) {
        parts.push_back({.row = row,
                         .first = in.packing.first_token[i] + t,
                         .tokens = std::min<int64_t>(step, item.cu_seqlens[s + 1] - t),
                         .begins = t == item.cu_seqlens[s]});
      }
    }
  }
  return parts;
}

// [sequences, vocabulary], float32, of the items that want kSparse.
absl::StatusOr<at::Tensor> SpladeHead::Weights(const HeadInputs& in, int64_t sequences) const {
  const int64_t step =
      std::min(HeadRows(in.rows, decoder_.elements()), RowsOfLogits(decoder_.out()));
  const std::vector<Part> parts = PartsOf(in, step);
  at::Tensor weights = at::empty({sequences, decoder_.out()}, in.rows.options().dtype(at::kFloat));
  for (size_t begin = 0; begin < parts.size();) {
    // As many adjacent parts as fit.
    size_t end = begin + 1;
    int64_t tokens = parts[begin].tokens;
    while (end < parts.size() && tokens + parts[end].tokens <= step &&
           parts[end].first == parts[begin].first + tokens) {
      tokens += parts[end++].tokens;
    }
    const at::Tensor logits =
        decoder_(transform_(in.rows.narrow(0, parts[begin].first, tokens))).to(at::kFloat);
    if (config_.sum) Squash(config_.twice, logits);
    for (size_t p = begin; p < end; ++p) {
      const Part& part = parts[p];
      const at::Tensor rows = logits.narrow(0, part.first - parts[begin].first, part.tokens);
      at::Tensor collected = weights.select(0, part.row);
      const at::Tensor now = config_.sum ? at::sum(rows, {0}) : at::amax(rows, {0});
      if (part.begins) {
        collected.copy_(now);
      } else if (config_.sum) {
        collected.add_(now);
      } else {
        at::maximum_out(collected, collected, now);
      }
    }
    begin = end;
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
  }
  // Squashing keeps the order of logits, so the greatest is squashed last.
  if (config_.sum) return weights;
  absl::Status done = InSteps(sequences, RowsOfLogits(decoder_.out()), in.control,
                              [&](int64_t first, int64_t count) {
                                Squash(config_.twice, weights.narrow(0, first, count));
                              });
  if (!done.ok()) return done;
  return weights;
}

absl::StatusOr<std::vector<at::Tensor>> SpladeHead::ReadOut(const HeadInputs& in) const {
  absl::StatusOr<std::vector<at::Tensor>> outputs = rows_.ReadOut(in);
  if (!outputs.ok()) return outputs;
  int64_t sequences = 0;
  for (const BatchItem& item : in.batch.items) {
    if (item.output_kind == EncodeOutput::kSparse) sequences += item.sequences();
  }
  if (sequences == 0) return outputs;
  absl::StatusOr<at::Tensor> weights = Weights(in, sequences);
  if (!weights.ok()) return weights.status();
  int64_t first = 0;
  for (size_t i = 0; i < in.batch.items.size(); ++i) {
    const BatchItem& item = in.batch.items[i];
    if (item.output_kind != EncodeOutput::kSparse) continue;
    (*outputs)[i] = weights->narrow(0, first, item.sequences());
    first += item.sequences();
  }
  return outputs;
}

LexicalHead::LexicalHead(Pooling pooling, bool normalize, DenseStack of_tokens, DenseStack weights,
                         int64_t vocabulary)
    : rows_({pooling}, /*hidden=*/0, normalize, /*dense=*/{}, std::move(of_tokens)),
      weights_(std::move(weights)),
      vocabulary_(vocabulary),
      info_(rows_.info()) {
  info_.outputs = {EncodeOutput::kPooled, EncodeOutput::kSparse, EncodeOutput::kTokenEmbeddings};
  info_.lexical = true;
}

LexicalHead::LexicalHead(int64_t vocabulary)
    : rows_(Pooling::kMean, /*normalize=*/false), vocabulary_(vocabulary), unweighed_(0) {
  info_.outputs = {EncodeOutput::kSparse};
  info_.lexical = true;
}

HeadActivations LexicalHead::activations(int64_t hidden, DType dtype) const {
  constexpr int64_t kFloat = sizeof(float);
  HeadActivations bytes = rows_.activations(hidden, dtype);
  // If any item of the batch wants pooled rows, all sequences are pooled.
  bytes.sparse = bytes.pooled;
  // All tokens get weights, which are scattered by sequence and id.
  bytes.sparse.token += weights_.row_bytes() + 2 * kFloat + 3 * int64_t{sizeof(int64_t)};
  bytes.sparse.sequence += kernels::Count(vocabulary_) * kFloat + 2 * int64_t{sizeof(int64_t)};
  bytes.batch = std::max(bytes.batch, kMostHeadRows * kernels::Count(hidden) * kFloat);
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
    // The place of a token's weight: its sequence's row, its id's column.
    const at::Tensor places = at::repeat_interleave(at::arange(sequences, offsets.options()),
                                                    offsets, /*dim=*/0, /*output_size=*/tokens)
                                  .mul_(vocabulary_)
                                  .add_(in.ids.narrow(0, first, tokens));
    at::Tensor& rows = (*outputs)[i];
    rows = at::zeros({sequences * vocabulary_}, weights.options());
    rows.scatter_reduce_(0, places, weights.narrow(0, first, tokens), "amax");
    rows = rows.view({sequences, vocabulary_});
    rows.narrow(1, 0, unweighed_).zero_();
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
  }
  return outputs;
}

}  // namespace castor::encoder
