// An upper bound of the memory of a forward pass in bytes, without the weights. It grows with the
// rows. A model's body and head state theirs next to the code that allocates it. The memory inside
// attention kernels is not included: the variant table has it (attention/variants.h).
//
// Plain numbers; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/kernels/count.h"
#include "engine/request.h"

namespace castor::encoder {

struct RowBytes {
  kernels::Count token = 0;
  kernels::Count sequence = 0;
  kernels::Count span = 0;

  kernels::Count Of(int64_t tokens, int64_t sequences, int64_t spans) const {
    return token * tokens + sequence * sequences + span * spans;
  }
};

// The memory of heads that are processed some at a time (self_attention.h): of all heads while that
// is little, else of as many as fit into `most`, but of one grain at least.
struct HeadBytes {
  kernels::Count all = 0;    // of a token, all heads
  kernels::Count grain = 0;  // of a token, the fewest heads that are processed together
  int64_t most = 0;          // for any number of tokens

  kernels::Count Of(int64_t tokens) const {
    return std::min(all * tokens, std::max(kernels::Count(most), grain * tokens));
  }
};

struct BodyActivations {
  RowBytes rows = {};        // from the first layer until the head has read them
  RowBytes layers = {};      // in addition, while the layers run
  HeadBytes qkv = {};        // likewise: queries, keys and values
  kernels::Count batch = 0;  // once per batch, for any number of rows
};

// In addition to the body's rows, after the layers have run; by the output that a request wants.
struct HeadActivations {
  RowBytes pooled = {};      // one row per sequence
  RowBytes spans = {};       // one row per span
  RowBytes tokens = {};      // all rows
  RowBytes labels = {};      // logits or scores
  RowBytes sparse = {};      // weights of the vocabulary
  kernels::Count batch = 0;  // once per batch, for rows that are processed in steps

  const RowBytes& Of(EncodeOutput output) const {
    switch (output) {
      case EncodeOutput::kPooled:
        return pooled;
      case EncodeOutput::kTokenEmbeddings:
      case EncodeOutput::kMaxSim:
        return tokens;
      case EncodeOutput::kLogits:
      case EncodeOutput::kScores:
        return labels;
      case EncodeOutput::kSparse:
        return sparse;
    }
    return tokens;
  }
};

struct Activations {
  BodyActivations body = {};
  HeadActivations head = {};
  RowBytes indices = {};  // ids, positions, offsets

  // The memory of a request's rows and spans. The sum over a batch's requests, plus batch() once,
  // is no less than the batch takes.
  kernels::Count Of(int64_t tokens, int64_t sequences, std::span<const EncodeOutput> outputs,
                    int64_t spans = 0) const {
    const auto of = [&](const RowBytes& bytes) { return bytes.Of(tokens, sequences, spans); };
    kernels::Count read_out = 0;
    for (const EncodeOutput output : outputs) {
      const bool in_spans = spans > 0 && output == EncodeOutput::kPooled;
      read_out += of(in_spans ? head.spans : head.Of(output));
    }
    const kernels::Count layers = of(body.layers) + body.qkv.Of(tokens);
    return of(indices) + of(body.rows) + std::max(layers, read_out);
  }

  kernels::Count batch() const { return std::max(body.batch, head.batch); }
};

}  // namespace castor::encoder
