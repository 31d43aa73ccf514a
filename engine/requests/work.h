// A checked request in the form in which it is staged and run: the problem, its tensors in the
// engine's own memory, the parts of the answer that are known before it runs, and its batch key.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/attention/resolve.h"
#include "engine/base/host_memory.h"
#include "engine/encoder/network/batch.h"
#include "engine/encoder/text/prepare.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/residents/model_list.h"

namespace castor {

enum class Operation { kAttend, kEncode };

// "attend", "encode".
inline std::string_view NameOf(Operation operation) {
  return operation == Operation::kAttend ? "attend" : "encode";
}

struct AttentionWork {
  attention::Resolved resolved;
  HostBuffer input;            // query, key, value and all else, each aligned to 64 bytes
  HostBuffer output;           // the caller's result
  HostBuffer log_sum_exp;      // the caller's, if requested
  attention::Problem problem;  // points into the members above

  int64_t output_bytes() const { return static_cast<int64_t>(output.size() + log_sum_exp.size()); }
};

// One of a request's outputs.
struct OutputWork {
  encoder::BatchItem item;       // points into the EncodeWork and `values`
  HostBuffer values;             // float32, from the device
  HostBuffer typed;              // the caller's result, if that has another type
  std::vector<float> ranges;     // [2, dimensions], if the type needs them
  std::vector<int64_t> lengths;  // rows per sequence
};

// An answer's rows in the answer cache, and all that they depend on. Immutable.
struct CachedAnswer {
  std::string key;
  std::vector<OutputRows> outputs;
  std::string device;  // that computed them, and the backend
  std::string backend;
  int64_t bytes = 0;
};

class AnswerCache;
struct CacheCounts;

// A request's part in the answer cache (answer_cache.h).
struct CacheUse {
  AnswerCache* cache = nullptr;
  CacheCounts* counts = nullptr;  // null: the answer is neither looked for nor kept
  std::string tenant = {};
  std::string key = {};                                 // if the answer was not there
  uint64_t hash = 0;                                    // of the key
  std::shared_ptr<const CachedAnswer> found = nullptr;  // if it was
};

struct EncodeWork {
  EncodeRequest request;  // its texts point into `text`; its input is empty once it is staged
  std::string text;       // the copies of the request's texts
  ModelUse model;
  Kernel kernel = Vanilla{};
  const Prompt* prompt = nullptr;  // the model's, which is put before the texts
  encoder::Prepared prepared;      // filled by a tokenizer thread if the request has texts
  Tokenized tokenized;             // the same for a request that does not run on the device
  double tokenize_us = 0;          // the time of tokenizing, without the waits between slices
  HostBuffer input;                // embeddings [tokens, hidden], if the request has them
  std::vector<float> ranges;       // [2, dimensions], if the request has them
  // All memory of the answer is allocated early, where OUT_OF_MEMORY can be answered.
  std::vector<OutputWork> outputs;
  std::vector<int64_t> token_counts;      // per sequence
  std::vector<encoder::RowRange> pooled;  // the rows to pool; empty: all rows of each sequence
  CacheUse cache;

  bool tokenizes() const {
    return !request.runs() || std::holds_alternative<TextInput>(request.input);
  }
  bool needs_run() const { return request.runs() && cache.found == nullptr; }

  std::vector<encoder::BatchItem> items() const {
    std::vector<encoder::BatchItem> all;
    for (const OutputWork& output : outputs) all.push_back(output.item);
    return all;
  }

  int64_t output_bytes() const {
    size_t bytes = 0;
    for (const OutputWork& output : outputs) bytes += output.values.size() + output.typed.size();
    return static_cast<int64_t>(bytes) + tokenized.size_bytes() +
           (cache.found ? cache.found->bytes : 0);
  }
};

// Requests with equal keys may share a batch. A key is the bytes of everything that one launch has
// in common: the operation; for attention all of its Spec, with biases by their address, so that a
// request with biases of its own runs alone; for an encoder the model's number and the kernel's
// parameters, and whether tokens are hidden from others. Lengths are not part of the key: batches
// are ragged.
std::string BatchKey(const attention::Spec& spec);
std::string BatchKey(uint64_t model, const Kernel& kernel, bool hides);

}  // namespace castor
