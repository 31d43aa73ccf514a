// A batch for an encoder model: the sequences of many requests, packed without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/request.h"

namespace castor::encoder {

class Model;

// Rows of one item that are pooled together.
struct RowRange {
  int32_t begin = 0;
  int32_t end = 0;  // exclusive; if equal to begin, the result is zeros
};

// One request's sequences, and one output of them. Views of host memory that must outlive the run.
struct BatchItem {
  std::span<const int32_t> cu_seqlens;  // [sequences + 1], from 0

  // This item is another output of the item before it. Their sequences are computed once.
  bool repeats = false;

  // Either ids, or embeddings.
  std::span<const int64_t> ids = {};       // [tokens]
  std::span<const int64_t> type_ids = {};  // [tokens], or empty: all zero
  const std::byte* embeddings = nullptr;   // [tokens, hidden]
  DType embeddings_dtype = DType::kFloat32;

  // The ranges that are pooled; empty: each sequence as a whole.
  std::span<const RowRange> spans = {};

  int32_t task = -1;  // the model's adapter for its rows, by index; negative: none

  std::span<const int64_t> hidden = {};        // tokens that no token attends to
  std::span<const int64_t> kept = {};          // tokens with a row, where tokens have rows,
  std::span<const int32_t> kept_seqlens = {};  // and their offsets; empty: all have one

  // The rows that this request wants. Requests that differ here still share the forward pass.
  EncodeOutput output_kind = EncodeOutput::kPooled;
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  int64_t dimensions = 0;     // of each output row: engine/encoder/text/output_types.h
  bool cut_last = false;      // rows are cut to `dimensions` after they are normalised
  bool token_labels = false;  // logits and scores are per token, not per sequence

  // float32: [output_rows(), dimensions].
  float* output = nullptr;

  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  int64_t tokens() const { return cu_seqlens.back(); }
  bool vectors() const {  // whether it wants rows of the body: pooled, compared or unchanged
    return output_kind == EncodeOutput::kPooled || output_kind == EncodeOutput::kTokenEmbeddings ||
           output_kind == EncodeOutput::kMaxSim;
  }
  bool labels() const {  // whether it wants a classifier's logits or scores
    return output_kind == EncodeOutput::kLogits || output_kind == EncodeOutput::kScores;
  }
  int64_t output_rows() const {
    if (output_kind == EncodeOutput::kPooled && !spans.empty()) {
      return static_cast<int64_t>(spans.size());
    }
    if (output_kind == EncodeOutput::kMaxSim) return sequences() - 1;
    if (output_kind == EncodeOutput::kTokenEmbeddings && !kept_seqlens.empty()) {
      return std::ssize(kept);
    }
    return output_kind == EncodeOutput::kTokenEmbeddings || (labels() && token_labels)
               ? tokens()
               : sequences();
  }
};

struct Batch {
  std::shared_ptr<const Model> model;
  Kernel kernel = Vanilla{};  // of every attention layer; never Automatic
  std::vector<BatchItem> items;
};

}  // namespace castor::encoder
