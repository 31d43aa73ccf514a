// The engine's requests and results: plain C++ types, no tensor library, no network. Field names
// follow the wire (proto/castor/v1), which documents every limit and default.
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

// An input tensor, row-major: the concatenation of pieces of memory, or a range of a file. It is
// read once, while Submit runs; the descriptor must stay open until Submit returns. Other processes
// may change or truncate the file at any time: changed bytes are taken as they were read, and a
// range that is no longer complete is an error. engine/tensor_reader.h reads both kinds.
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
  int32_t iterations = 10;  // with kQuerySpace callers must set this: DefaultIterations, or another
  int32_t bits = 63;        // for kHash; must keep its default for kQuerySpace
  bool hash_bias = true;    // as `bits`
  uint64_t seed = 0;
  Clustering clustering = Clustering::kHash;
};

// The default of `iterations`.
constexpr int32_t DefaultIterations(Clustered::Clustering clustering) {
  return clustering == Clustered::Clustering::kQuerySpace ? 1 : Clustered{}.iterations;
}

struct ImprovedClustered : Clustered {
  enum class RestMass { kCentroid, kQuery };

  int32_t topk = 32;
  RestMass rest_mass = RestMass::kCentroid;
  int32_t rest_groups = 1;  // for kQuery; must keep its default for kCentroid
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

// The fields that every request has in addition to its problem.
struct CallContext {
  std::string request_id;  // for logs; the engine never interprets it
  Priority priority = Priority::kNormal;
  std::optional<TimePoint> deadline;
  // When the request's bytes arrived, where its Timing starts. Unset: when Submit is called.
  std::optional<TimePoint> received;
  // Tenants share the device fairly. All requests with an empty name are of one tenant.
  std::string tenant;
  // Submit may prepare a short request itself, and run it while the device is idle or answer it
  // without a run; it then calls the completion before it returns. Fewer threads have to wake up.
  bool may_run_in_submit = false;
};

// The keys that a query at position p sees: those at positions p - left .. p + right, where -1
// means no bound. Keys at positions below `always_visible`, unless that is 0, are never too far to
// the left.
struct Window {
  int64_t left = -1;
  int64_t right = -1;
  int64_t always_visible = 0;

  bool any() const { return left >= 0 || right >= 0; }
  bool operator==(const Window&) const = default;
};

// The positions of queries and keys, and their effect on scores.
struct Positions {
  std::vector<int64_t> query;  // of each sequence's first query; empty: its keys less its queries
  std::vector<int64_t> key;    // of each sequence's first key; empty: 0
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
  TensorInput query;                   // [tokens, heads, head_dim] or [batch, tokens, ...]
  TensorInput key;                     // [key_tokens, kv_heads, head_dim] or [batch, ...]
  TensorInput value;                   // [key_tokens, kv_heads, value_dim] or [batch, ...]; or none
  std::vector<int64_t> query_lengths;  // per packed sequence; empty: one sequence
  std::vector<int64_t> key_lengths;    // empty: the same as query_lengths
  std::optional<double> softmax_scale;  // unset: 1 / sqrt(head_dim)
  Kernel kernel = Vanilla{};
  int32_t fidelity_rows = 0;
  bool check_finite = false;
  bool return_log_sum_exp = false;
  bool value_is_key_prefix = false;  // a value is the first value_dim elements of its key
  int64_t value_dim = 0;             // for value_is_key_prefix
  Positions positions;
  double softcap = 0;                   // 0: none
  std::optional<TensorInput> key_bias;  // [key_tokens] or [key_tokens, kv_heads], float32
};

struct TextInput {
  // Valid UTF-8. Views into the caller's memory, read while Submit runs.
  std::vector<std::string_view> texts;
  std::vector<std::string_view> pairs;  // empty, or one per text
  bool allow_special_tokens = false;

  // Whether text `i` is the same view as the one before it, as a query is in its pairs. Such a text
  // is checked and copied once, but charged each time, since it is tokenized with each pair.
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
// late interaction, whose default output is kTokenEmbeddings: the first text is a query, the others
// are documents, and each document has one row, its MaxSim.
enum class EncodeOutput { kPooled, kTokenEmbeddings, kLogits, kScores, kSparse, kMaxSim };
// kSeveral: the concatenation that the model's own modules define.
enum class Pooling { kMean, kCls, kLastToken, kMaximum, kWeightedMean, kMeanSqrtLength, kSeveral };
inline constexpr Pooling kAllPoolings[] = {Pooling::kMean,         Pooling::kCls,
                                           Pooling::kLastToken,    Pooling::kMaximum,
                                           Pooling::kWeightedMean, Pooling::kMeanSqrtLength};
enum class Side { kLeft, kRight };

// The type of rows of kPooled and kTokenEmbeddings. The binary types have eight dimensions to a
// byte.
enum class OutputType { kFloat32, kFloat16, kBFloat16, kInt8, kUInt8, kBinary, kUBinary };

// Ranges of the request's sequences, each of which is pooled separately.
struct Spans {
  enum class Unit { kCharacters, kBytes, kTokens };
  struct Range {
    int32_t sequence = 0;
    int64_t begin = 0;
    int64_t end = 0;    // exclusive
    bool pair = false;  // in the second text of a pair; not for kTokens
  };

  std::optional<Unit> unit;   // unset: characters for texts, tokens for other inputs
  std::vector<Range> ranges;  // none: each sequence is pooled as a whole
};

// Work in place of a pass through the model.
struct TokenizeOnly {  // of texts, which are cut only if `truncate` is set
  bool add_special_tokens = true;
  bool return_tokens = false;
};
struct DetokenizeOnly {  // of token ids
  bool skip_special_tokens = false;
};

struct EncodeRequest {
  CallContext call;
  std::string model;  // empty: the only one
  // The ModelInfo::generation for which the request was made; 0: any. MODEL_LOADING if the model
  // has been replaced meanwhile.
  uint64_t generation = 0;
  std::variant<TextInput, TokenInput, EmbeddingInput> input;
  std::optional<Kernel> kernel;        // unset: the model's own
  std::optional<EncodeOutput> output;  // unset: the model's default
  std::vector<EncodeOutput> outputs;  // several different outputs of one pass, in place of `output`
  OutputType output_type = OutputType::kFloat32;
  std::optional<TensorInput> ranges;  // [2, dimensions], for kInt8 and kUInt8; unset: of the rows
  std::optional<Pooling> pooling;     // unset: the model's own
  std::optional<bool> normalize;      // unset: the model's own
  int64_t dimensions = 0;             // 0: all
  bool truncate = true;
  std::optional<Side> truncation_side;  // where longer sequences are cut; unset: the model's own
  int64_t max_tokens = 0;               // of a sequence, at most the model's maximum; 0: that
  bool check_finite = true;
  Spans spans;
  std::optional<std::string> prompt_name;  // unset: the model's default; empty: no prompt
  std::optional<std::string> prompt;       // any text, in place of `prompt_name`
  std::string task;                        // whose adapter applies; empty: none
  bool return_texts = false;               // the answer includes the texts and counts their bytes
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

// An answer's bytes in the engine's budget and its tenant's quota, until this object is destroyed.
// The caller must keep it for as long as it holds the answer in any form. May outlive the engine;
// any thread.
class AnswerShare {
 public:
  virtual ~AnswerShare() = default;

  // Changes the number of bytes that the answer holds.
  virtual void ResizeTo(int64_t bytes) noexcept = 0;
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
  double predicted_us = 0;    // for this request alone, if the kernel was chosen; 0 otherwise
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
  // The answer is that of an earlier, equal request: there was no run, and the numbers are zero.
  bool cached = false;
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
  std::shared_ptr<AnswerShare> share = nullptr;  // for all tensors
  TensorResult output;
  std::optional<TensorResult> log_sum_exp;  // float32, the output's shape without value_dim
  ExecutionReport report;
};

// The tokens of a range of Spans.
struct PooledSpan {
  int32_t begin = 0;  // within its sequence
  int32_t end = 0;
  bool truncated = false;  // whether a part of it was cut off
};

// The non-zero elements of a row for each sequence.
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

// The answer to TokenizeOnly and DetokenizeOnly.
struct Tokenized {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  static constexpr int64_t kBytesPerToken = 2 * sizeof(int64_t) + 2 + 2 * sizeof(Range);

  // One element for each token of all texts.
  std::vector<int64_t> ids;
  std::vector<int64_t> type_ids;
  std::vector<bool> special;      // whether the tokenizer added it
  std::vector<bool> pair;         // whether it is in the second text of a pair
  std::vector<Range> bytes;       // within the text, without its prompt; empty for special tokens
  std::vector<Range> characters;  // as `bytes`
  std::vector<std::string> tokens;
  // One element for each text.
  std::vector<int64_t> lengths;  // in tokens
  std::vector<bool> truncated;
  std::vector<std::string> texts;  // for DetokenizeOnly

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
  std::shared_ptr<AnswerShare> share = nullptr;  // for all members below
  std::string model;
  std::string prompt_name;            // of the prompt used; empty: none, or a text of the request
  TensorResult output;                // empty where `sparse` or `outputs` is set
  std::optional<SparseRows> sparse;   // kSparse
  std::vector<OutputRows> outputs;    // in the order of the request's outputs
  std::vector<std::string> labels;    // of the columns of kLogits and kScores
  std::vector<int64_t> lengths;       // rows of `output` or `sparse` per sequence
  std::vector<int64_t> token_counts;  // tokens computed per sequence
  std::vector<bool> truncated;
  std::vector<PooledSpan> spans;  // one per range
  // With return_texts: the texts, or the second ones of pairs. Views of `text`.
  std::vector<std::string_view> texts;
  std::string text;
  std::optional<Tokenized> tokenized;  // in place of all members above except the names
  ExecutionReport report;              // with `tokenized`, only decode_us is set
};

// The kernel's name. `kernel` must not hold Automatic.
KernelName NameOf(const Kernel& kernel);

}  // namespace castor
