// How much memory a forward pass takes beside the weights, in bytes: an upper bound that grows with
// the rows. A model's body and head state theirs beside the code that allocates it. What attention
// kernels take inside is not included: the variant table knows (attention/variants.h).
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

// Of heads that go by some at a time (self_attention.h): all of them while that is little, else as
// many as `most` lets, but a grain at least.
struct HeadBytes {
  kernels::Count all = 0;    // a token's
  kernels::Count grain = 0;  // of these, in the fewest heads that go together
  int64_t most = 0;          // however many tokens there are

  kernels::Count Of(int64_t tokens) const {
    return std::min(all * tokens, std::max(kernels::Count(most), grain * tokens));
  }
};

struct BodyActivations {
  RowBytes rows = {};        // from the first layer until the head has read them
  RowBytes layers = {};      // besides, while the layers run
  HeadBytes qkv = {};        // the same: queries, keys and values
  kernels::Count batch = 0;  // once, however many rows there are
};

// Besides the body's rows, when the layers have run.
struct HeadActivations {
  RowBytes pooled = {};  // of a request that wants one row per sequence
  RowBytes spans = {};   // of one that wants one row per span
  RowBytes tokens = {};  // of one that wants all
  RowBytes labels = {};  // of one that wants logits or scores
  RowBytes sparse = {};
  kernels::Count batch = 0;  // once, for rows that go by in steps

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
  RowBytes indices = {};  // what a batch brings: ids, positions, offsets

  // Of a request's rows, and so many spans of pooled ones. In a batch this adds up to no less than
  // the batch takes; batch() is there once.
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
