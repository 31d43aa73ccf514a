// What callers ask of the engine and what they get: plain C++ types, no tensor library, no network.
// Field names follow the wire (proto/castor/v1), which documents every limit and default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/dtype.h"
#include "engine/base/host_memory.h"

namespace castor {

// ---- kernels ---------------------------------------------------------------------------------

// In the order of Kernel's alternatives; engine/kernel_table.h describes each.
enum class KernelName { kVanilla, kClustered, kImprovedClustered, kCast };

// "vanilla", "improved_clustered": metric labels and log fields.
std::string_view NameOf(KernelName name);

// A range of an open file, such as a shared-memory object.
struct FileRange {
  int descriptor = -1;
  int64_t offset = 0;  // bytes, from the file's start
  int64_t size = 0;    // bytes
};

// An input tensor, row-major: the concatenation of pieces of memory, or a range of a file. Read
// once, while Submit runs; the descriptor must stay open until Submit returns. Other processes may
// change or truncate the file at any time: the bytes are whatever was read, and a range that is no
// longer complete is an error. engine/tensor_reader.h reads both kinds.
struct TensorInput {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<std::span<const std::byte>> pieces;
  std::optional<FileRange> file = std::nullopt;  // if set, replaces `pieces`

  int64_t size_bytes() const;  // -1 if the sum of the pieces overflows
};

struct Vanilla {
  bool causal = false;
};

struct Clustered {
  enum class Clustering { kHash, kQuerySpace };

  int32_t clusters = 100;
  int32_t iterations = 10;  // callers who choose kQuerySpace put its default here, see below
  int32_t bits = 63;        // of kHash; must stay as it is for kQuerySpace
  bool hash_bias = true;    // likewise
  uint64_t seed = 0;
  Clustering clustering = Clustering::kHash;
};

// What `iterations` is where the caller leaves it to the kernel.
constexpr int32_t DefaultIterations(Clustered::Clustering clustering) {
  return clustering == Clustered::Clustering::kQuerySpace ? 1 : Clustered{}.iterations;
}

struct ImprovedClustered : Clustered {
  enum class RestMass { kCentroid, kQuery };

  int32_t topk = 32;
  RestMass rest_mass = RestMass::kCentroid;
};

struct Cast {
  enum class Clustering { kTopK, kSingleAssignmentTopK };
  enum class AttentionFunction { kSoftmax, kLaplace };
  enum class GateTemperature { kSoftplus1, kNone };
  enum class HeadClustering { kShared, kPerHead };

  std::variant<TensorInput, std::string> surrogates;  // [N_c, heads, head_dim], or "MODEL/INDEX"
  TensorInput gate;                                   // [tokens], float32
  Clustering clustering = Clustering::kTopK;
  int32_t cluster_size = 0;  // 0: ceil(tokens / N_c)
  AttentionFunction attention_function = AttentionFunction::kSoftmax;
  GateTemperature gate_temperature = GateTemperature::kSoftplus1;
  HeadClustering head_clustering = HeadClustering::kShared;
};

struct Automatic {
  std::vector<KernelName> allowed = {};  // empty: every kernel that needs no further input
  double max_relative_error = 0;         // of attention; 0: exact only
};

using Kernel = std::variant<Vanilla, Clustered, ImprovedClustered, Cast, Automatic>;

// ---- requests --------------------------------------------------------------------------------

enum class Priority { kLow, kNormal, kHigh };

// What every request carries besides its problem.
struct CallContext {
  std::string request_id;  // for logs; the engine never interprets it
  Priority priority = Priority::kNormal;
  std::optional<TimePoint> deadline;
  // When the request's bytes arrived: its Timing starts here. Unset: when Submit is called.
  std::optional<TimePoint> received;
  // Who shares the device fairly with the others; empty: all who give none.
  std::string tenant;
};

// Which keys a query at position p sees: those at positions p - left .. p + right, where -1 is no
// bound. Those below `always_visible`, unless it is 0, are never too far to the left.
struct Window {
  int64_t left = -1;
  int64_t right = -1;
  int64_t always_visible = 0;

  bool any() const { return left >= 0 || right >= 0; }
  bool operator==(const Window&) const = default;
};

// Where queries and keys are, and what that does to scores.
struct Positions {
  std::vector<int64_t> query;  // each sequence's first; empty: its keys less its queries
  std::vector<int64_t> key;    // likewise; empty: 0
  Window window;
  std::vector<float> alibi_slopes;           // [heads]; empty: none
  std::optional<TensorInput> relative_bias;  // [heads, 2 * reach + 1], float32

  bool any() const {
    return !query.empty() || !key.empty() || window != Window{} || !alibi_slopes.empty() ||
           relative_bias.has_value();
  }
};

struct AttentionRequest {
  CallContext call;
  TensorInput query;                    // [tokens, heads, head_dim] or [batch, tokens, ...]
  TensorInput key;                      // [key_tokens, kv_heads, head_dim], likewise
  TensorInput value;                    // [key_tokens, kv_heads, value_dim], likewise; or none
  std::vector<int64_t> query_lengths;   // per packed sequence; empty: one sequence
  std::vector<int64_t> key_lengths;     // empty: the same as query_lengths
  std::optional<double> softmax_scale;  // unset: 1 / sqrt(head_dim)
  Kernel kernel = Vanilla{};
  int32_t fidelity_rows = 0;
  bool check_finite = false;
  bool return_log_sum_exp = false;
  bool value_is_key_prefix = false;  // there is no `value`: it is the first value_dim of a key
  int64_t value_dim = 0;             // of value_is_key_prefix
  Positions positions;
  double softcap = 0;                   // 0: none
  std::optional<TensorInput> key_bias;  // [key_tokens] or [key_tokens, kv_heads], float32
};

struct TextInput {
  // Valid UTF-8. Views into the caller's memory, read while Submit runs.
  std::vector<std::string_view> texts;
  std::vector<std::string_view> pairs;  // empty, or one per text
  bool allow_special_tokens = false;

  // Whether a text is the very one before it, as a query is in all of its pairs: then it is checked
  // and copied once. It is charged for each pair, since it is tokenized with each.
  static bool Repeats(const std::vector<std::string_view>& texts, size_t i) {
    return i > 0 && texts[i].data() == texts[i - 1].data() &&
           texts[i].size() == texts[i - 1].size();
  }
};

struct TokenInput {
  std::vector<int64_t> ids;       // special tokens included
  std::vector<int64_t> type_ids;  // empty (all zero), or one per id
  std::vector<int64_t> lengths;   // empty: one sequence
};

struct EmbeddingInput {
  TensorInput values;  // [tokens, hidden]
  std::vector<int64_t> lengths;
};

// kLogits and kScores come from classifiers, kSparse from SPLADE models, kMaxSim from models with
// late interaction, whose own output is kTokenEmbeddings: the first text is a query, the others are
// documents, and each of these has one row, its MaxSim.
enum class EncodeOutput { kPooled, kTokenEmbeddings, kLogits, kScores, kSparse, kMaxSim };
// kSeveral: what the model's own modules put side by side.
enum class Pooling { kMean, kCls, kLastToken, kMaximum, kWeightedMean, kMeanSqrtLength, kSeveral };
inline constexpr Pooling kAllPoolings[] = {Pooling::kMean,         Pooling::kCls,
                                           Pooling::kLastToken,    Pooling::kMaximum,
                                           Pooling::kWeightedMean, Pooling::kMeanSqrtLength};
enum class Side { kLeft, kRight };

// What rows of kPooled and kTokenEmbeddings are given as. Those of bits are eight dimensions to a
// byte.
enum class OutputType { kFloat32, kFloat16, kBFloat16, kInt8, kUInt8, kBinary, kUBinary };

// Ranges of the request's sequences that are pooled each by itself.
struct Spans {
  enum class Unit { kCharacters, kBytes, kTokens };
  struct Range {
    int32_t sequence = 0;
    int64_t begin = 0;
    int64_t end = 0;    // exclusive
    bool pair = false;  // of the second text of a pair; not of tokens
  };

  std::optional<Unit> unit;   // unset: characters of texts, tokens of the rest
  std::vector<Range> ranges;  // none: each sequence is pooled as a whole
};

// Instead of a pass through the model.
struct TokenizeOnly {  // texts; cut only if `truncate` says so
  bool add_special_tokens = true;
  bool return_tokens = false;
};
struct DetokenizeOnly {  // token ids
  bool skip_special_tokens = false;
};

struct EncodeRequest {
  CallContext call;
  std::string model;  // empty: the only one
  std::variant<TextInput, TokenInput, EmbeddingInput> input;
  std::optional<Kernel> kernel;        // unset: the model's own
  std::optional<EncodeOutput> output;  // unset: the model's own, the first it lists
  std::vector<EncodeOutput> outputs;   // of one pass, instead; no two alike
  OutputType output_type = OutputType::kFloat32;
  std::optional<TensorInput> ranges;  // [2, dimensions]: of kInt8 and kUInt8; unset: the rows' own
  std::optional<Pooling> pooling;     // unset: the model's own
  std::optional<bool> normalize;      // unset: the model's own
  int64_t dimensions = 0;             // 0: all
  bool truncate = true;
  std::optional<Side> truncation_side;  // where longer sequences are cut; unset: the model's own
  int64_t max_tokens = 0;               // of a sequence, at most the model's; 0: the model's
  bool check_finite = true;
  Spans spans;
  std::optional<std::string> prompt_name;  // unset: the model's default; empty: no prompt
  std::optional<std::string> prompt;       // a free text, instead
  bool return_texts = false;               // the answer has them, and counts for them
  std::variant<std::monostate, TokenizeOnly, DetokenizeOnly> instead;

  bool runs() const { return std::holds_alternative<std::monostate>(instead); }  // on the device
};

// ---- results ---------------------------------------------------------------------------------

// An output tensor. Destroying it returns its memory to the pool.
struct TensorResult {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  HostBuffer data;
};

// The bytes that an answer counts for, in the engine's budget and its tenant's quota, until this is
// destroyed. So the caller keeps it for as long as it holds the answer in any form. May outlive the
// engine; any thread.
class AnswerShare {
 public:
  virtual ~AnswerShare() = default;

  // The answer takes so many bytes from now on.
  virtual void KeepOnly(int64_t bytes) noexcept = 0;
};

// A kernel that the automatic choice ran first and rejected because of its error.
struct RejectedKernel {
  Kernel kernel = Vanilla{};  // as in KernelReport
  double measured_us = 0;
  double relative_error = 0;  // estimated
};

struct KernelReport {
  Kernel kernel = Vanilla{};  // defaults resolved; never Automatic; Cast without its tensors
  std::string device;         // "cpu", "cuda:0"
  std::string backend;        // the implementation that ran, such as "cpu-avx2"
  double predicted_us = 0;    // of the automatic choice, for this request alone; 0 otherwise
  double measured_us = 0;     // the whole batch
  std::vector<RejectedKernel> rejected;  // by the automatic choice, in order
};

// Microseconds on the monotonic clock; see proto/castor/v1/report.proto.
struct Timing {
  double decode_us = 0;
  double queue_us = 0;
  double copy_in_us = 0;
  double compute_us = 0;
  double copy_out_us = 0;
};

struct BatchReport {
  uint64_t id = 0;  // of the run that gave the answer; unique in the engine
  int32_t requests = 0;
  int64_t tokens = 0;
  int64_t padded_tokens = 0;
  TimePoint begun{};  // when the device got it
  TimePoint ended{};  // when its outputs were seen in host memory
};

struct MemoryReport {
  int64_t workspace_bytes = 0;
  int64_t peak_bytes = 0;
};

struct Fidelity {
  int32_t rows = 0;  // per sequence; all rows of shorter ones
  double relative_error = 0;
  double probe_us = 0;  // exact rows and comparison, of all requests probed together
};

struct ExecutionReport {
  KernelReport kernel;
  Timing timing;
  BatchReport batch;
  MemoryReport memory;
  std::optional<Fidelity> fidelity;  // of attention
};

struct AttentionResult {
  std::shared_ptr<AnswerShare> share = nullptr;  // of all the tensors
  TensorResult output;
  std::optional<TensorResult> log_sum_exp;  // float32, the output's shape without value_dim
  ExecutionReport report;
};

// What became of a range of Spans.
struct PooledSpan {
  int32_t begin = 0;  // its tokens, within its sequence
  int32_t end = 0;
  bool truncated = false;  // some of it was cut off
};

// A row of each sequence, of which only what is not zero is here.
struct SparseRows {
  std::vector<int32_t> indices;  // ascending within a row
  std::vector<float> values;     // one for each index
  std::vector<int64_t> lengths;  // of each row

  int64_t size_bytes() const {
    return static_cast<int64_t>(indices.size() * (sizeof(int32_t) + sizeof(float)));
  }
};

// One of several outputs.
struct OutputRows {
  EncodeOutput output = EncodeOutput::kPooled;
  TensorResult values;               // empty where `sparse` is set
  std::optional<SparseRows> sparse;  // kSparse
  std::vector<int64_t> lengths;      // rows per sequence
};

// What TokenizeOnly and DetokenizeOnly answer.
struct Tokenized {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  static constexpr int64_t kBytesPerToken = 2 * sizeof(int64_t) + 2 + 2 * sizeof(Range);

  std::vector<int64_t> ids;  // [tokens], and so on
  std::vector<int64_t> type_ids;
  std::vector<bool> special;      // that the tokenizer added
  std::vector<bool> pair;         // of the second text of a pair
  std::vector<Range> bytes;       // of the text behind its prompt; of special ones 0 to 0
  std::vector<Range> characters;  // likewise
  std::vector<std::string> tokens;
  std::vector<int64_t> lengths;    // tokens of each text
  std::vector<bool> truncated;     // likewise
  std::vector<std::string> texts;  // DetokenizeOnly

  int64_t size_bytes() const {
    auto bytes = static_cast<int64_t>(ids.size()) * kBytesPerToken;
    for (const auto* strings : {&tokens, &texts}) {
      for (const std::string& one : *strings) {
        bytes += static_cast<int64_t>(sizeof(one) + one.size());
      }
    }
    return bytes;
  }
};

struct EncodeResult {
  std::shared_ptr<AnswerShare> share = nullptr;  // of all that follows
  std::string model;
  std::string prompt_name;            // put before the texts; empty: none, or a free text
  TensorResult output;                // empty where `sparse` or `outputs` is set
  std::optional<SparseRows> sparse;   // kSparse
  std::vector<OutputRows> outputs;    // in the order of the request's
  std::vector<std::string> labels;    // of the columns, with kLogits and kScores
  std::vector<int64_t> lengths;       // rows of `output` or `sparse` per sequence
  std::vector<int64_t> token_counts;  // tokens computed per sequence
  std::vector<bool> truncated;
  std::vector<PooledSpan> spans;  // one per range
  // With return_texts: the texts, of pairs the second ones; views of `text`.
  std::vector<std::string_view> texts;
  std::string text;
  std::optional<Tokenized> tokenized;  // instead of all the above but the names
  ExecutionReport report;              // of `tokenized` nothing but decode_us
};

// The kernel's name. `kernel` must not hold Automatic.
KernelName NameOf(const Kernel& kernel);

}  // namespace castor
