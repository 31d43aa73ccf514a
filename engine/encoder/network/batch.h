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
  int32_t end = 0;  // exclusive; equal: there are none, and the result is zeros
};

// One request's sequences, and one output of them. Host memory, alive until the execution is done.
struct BatchItem {
  std::span<const int32_t> cu_seqlens;  // [sequences + 1], from 0

  // Another output of the item before it, whose sequences are the same: they are computed once.
  bool repeats = false;

  // Either ids, or embeddings.
  std::span<const int64_t> ids = {};       // [tokens]
  std::span<const int64_t> type_ids = {};  // [tokens], or empty: all zero
  const std::byte* embeddings = nullptr;   // [tokens, hidden]
  DType embeddings_dtype = DType::kFloat32;

  // What is pooled, instead of each sequence as a whole; empty: just that.
  std::span<const RowRange> spans = {};

  // How this request wants its rows. Requests that differ here still share the forward pass.
  EncodeOutput output_kind = EncodeOutput::kPooled;
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  int64_t dimensions = 0;     // of each output row: engine/encoder/text/output_types.h
  bool cut_last = false;      // rows are cut to `dimensions` when they are normalised already
  bool token_labels = false;  // logits and scores are of tokens, not of sequences

  // float32: [output_rows(), dimensions].
  float* output = nullptr;

  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  int64_t tokens() const { return cu_seqlens.back(); }
  bool vectors() const {  // whether it wants rows of the body, pooled, compared or as they are
    return output_kind == EncodeOutput::kPooled || output_kind == EncodeOutput::kTokenEmbeddings ||
           output_kind == EncodeOutput::kMaxSim;
  }
  bool labels() const {  // whether it wants a classifier's
    return output_kind == EncodeOutput::kLogits || output_kind == EncodeOutput::kScores;
  }
  int64_t output_rows() const {
    if (output_kind == EncodeOutput::kPooled && !spans.empty()) {
      return static_cast<int64_t>(spans.size());
    }
    if (output_kind == EncodeOutput::kMaxSim) return sequences() - 1;
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
