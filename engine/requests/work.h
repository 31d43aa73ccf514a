// A checked request in the form in which it is staged and run: the problem, its tensors in the
// engine's own memory, and what of the answer is known before it runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/attention/resolve.h"
#include "engine/base/host_memory.h"
#include "engine/encoder/network/batch.h"
#include "engine/encoder/text/prepare.h"
#include "engine/engine.h"
#include "engine/models/models.h"
#include "engine/request.h"

namespace castor {

enum class Operation { kAttend, kEncode };

// "attend", "encode".
inline std::string_view NameOf(Operation operation) {
  return operation == Operation::kAttend ? "attend" : "encode";
}

struct AttentionWork {
  attention::Resolved resolved;
  HostBuffer input;            // query, key, value and all else, each aligned to 64 bytes
  HostBuffer output;           // what the caller gets
  HostBuffer log_sum_exp;      // the same, if wanted
  attention::Problem problem;  // points into the four above

  int64_t output_bytes() const { return static_cast<int64_t>(output.size() + log_sum_exp.size()); }
};

struct EncodeWork {
  EncodeRequest request;  // texts point into `text`; the input is empty once it is staged
  std::string text;       // the copies of the request's texts
  ModelPtr model;
  Kernel kernel = Vanilla{};
  const Prompt* prompt = nullptr;  // of the model; before the texts
  encoder::Prepared prepared;      // filled by a tokenizer thread when the request brings texts
  double tokenize_us = 0;          // time spent tokenizing, without the waits between slices
  HostBuffer input;                // embeddings [tokens, hidden], if the request brings them
  HostBuffer output;
  encoder::BatchItem item;  // points into `prepared`, `input` and `output`
  // Part of the answer, one entry per sequence. Allocated early, where OUT_OF_MEMORY can be
  // answered.
  std::vector<int64_t> lengths;
  std::vector<int64_t> token_counts;
  std::vector<encoder::RowRange> pooled;  // what is pooled, where that is not all of each sequence

  int64_t output_bytes() const { return static_cast<int64_t>(output.size()); }
};

}  // namespace castor
