// A trace: the requests that a server got, as JSON, one object a line, without their contents.
// `castor-server --record` writes it (server/recorder.h), and a client can. For example
//
//   {"at_us":1042,"kind":"attend","sequences":[128,[64,3]],"heads":8,"head_dim":64,
//    "dtype":"float32","kernel":"clustered","clusters":100,"priority":"high","deadline_ms":500}
//
// in one line: three of the four sequences have 64 tokens. The keys:
//   at_us        when it came, from the begin of the recording; lines need not be in this order
//   kind         "attend" or "encode"
//   sequences    tokens of each; [n, k] stands for k of n. Of texts, special tokens included
//   text_bytes   the same of texts that were refused before they were tokens: their bytes, instead
//   key_sequences, heads, head_dim, value_dim, dtype   of an attend; key_sequences if they differ
//                from `sequences`, value_dim if it differs from head_dim
//   model, output ("pooled", "token-embeddings",
//   "logits", "scores", "sparse")                      of an encode, if it said
//   kernel       as --kernel takes it, if it said; with causal, clusters, iterations, bits,
//                hash_bias, query_clustering, seed, topk, rest_mass, cluster_size,
//                surrogate_tokens, layer if it said
//   priority     "low", "normal" or "high", if it said
//   deadline_ms  what was left of its deadline, if it had one
// Other keys are ignored.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/kernel_flags.h"

namespace castor::load {

inline constexpr int64_t kMaxTraceRequests = 10'000'000;

struct TraceRequest {
  int64_t at_us = 0;
  bool encode = false;
  std::vector<int64_t> lengths;
  std::vector<int64_t> text_bytes;  // instead of `lengths`, of an encode
  std::optional<double> deadline_ms;
  v1::Priority priority = v1::PRIORITY_DEFAULT;
  cli::KernelFlags kernel;  // the keys above alone

  std::vector<int64_t> key_lengths;  // empty: as `lengths`
  int64_t heads = 0, head_dim = 0;
  int64_t value_dim = 0;  // 0: head_dim
  v1::DataType dtype = v1::FLOAT32;
  int64_t surrogate_tokens = 0;  // 0: not said

  std::string model;
  v1::EncodeOutput output = v1::ENCODE_OUTPUT_DEFAULT;
};

// What a trace says of a request; `at_us` and `deadline_ms` are the caller's to set.
TraceRequest Describe(const v1::AttendRequest& request);
TraceRequest Describe(const v1::EncodeRequest& request);

// Without its newline.
std::string ToTraceLine(const TraceRequest& request);

// Throws std::invalid_argument that says what is wrong.
TraceRequest ParseTraceLine(std::string_view line);

// Calls `visit` with each request of the file, in the file's order, holding one line at a time in
// memory. Throws cli::UsageError, naming the file and the line, for a file that cannot be read, for
// a line that is no request or longer than 256 KiB, for one request too many, and for none.
void ReadTrace(const std::string& file, const std::function<void(const TraceRequest&)>& visit);

// Writes a trace. Thread-safe.
class TraceWriter {
 public:
  // Overwrites the file. Throws cli::UsageError when it cannot be written.
  explicit TraceWriter(const std::string& file);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void Write(const TraceRequest& request);

  // Whether everything was written; call it at the end.
  bool Close();

 private:
  std::mutex mu_;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
};

}  // namespace castor::load
