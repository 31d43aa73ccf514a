// The requests that carry tensors, as they are on the wire: every field of the .proto files, values
// unchecked. A test compares these declarations with the .proto files' own descriptors. Texts and
// bytes point into the SliceView they were read from.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "server/codec/message.h"

namespace castor::server::wire {

// The most elements that the engine could admit.
inline constexpr auto kSequences = &DecodeBudget::max_sequences;
inline constexpr auto kTokens = &DecodeBudget::max_tokens;
inline constexpr auto kValues = &DecodeBudget::max_values;
inline constexpr int kSpans = 1 << 16;

// proto/castor/v1/tensor.proto

struct SharedMemoryRef {
  Text region;
  int64_t offset = 0;
  int64_t size = 0;

  using Fields = FieldList<Field<"region", 1, &SharedMemoryRef::region>,
                           Field<"offset", 2, &SharedMemoryRef::offset>,
                           Field<"size", 3, &SharedMemoryRef::size>>;
};

struct Tensor {
  int32_t dtype = 0;
  Repeated<int64_t> shape;
  std::variant<std::monostate, Bytes, SharedMemoryRef> data;

  using Fields = FieldList<Field<"dtype", 1, &Tensor::dtype>, Field<"shape", 2, &Tensor::shape, 8>,
                           OneOf<&Tensor::data, Case<"raw", 3>, Case<"shared_memory", 4>>>;
};

// proto/castor/v1/kernel.proto

struct Vanilla {
  bool causal = false;

  using Fields = FieldList<Field<"causal", 1, &Vanilla::causal>>;
};

struct Clustered {
  int32_t clusters = 0;
  int32_t iterations = 0;
  int32_t bits = 0;
  std::optional<bool> hash_bias;
  uint64_t seed = 0;
  int32_t clustering = 0;

  using Fields =
      FieldList<Field<"clusters", 1, &Clustered::clusters>,
                Field<"iterations", 2, &Clustered::iterations>, Field<"bits", 3, &Clustered::bits>,
                Field<"hash_bias", 4, &Clustered::hash_bias>, Field<"seed", 5, &Clustered::seed>,
                Field<"clustering", 6, &Clustered::clustering>>;
};

struct ImprovedClustered : Clustered {
  int32_t topk = 0;
  int32_t rest_mass = 0;
  int32_t rest_groups = 0;

  using Fields = FieldList<Field<"clusters", 1, &ImprovedClustered::clusters>,
                           Field<"iterations", 2, &ImprovedClustered::iterations>,
                           Field<"bits", 3, &ImprovedClustered::bits>,
                           Field<"hash_bias", 4, &ImprovedClustered::hash_bias>,
                           Field<"seed", 5, &ImprovedClustered::seed>,
                           Field<"topk", 6, &ImprovedClustered::topk>,
                           Field<"clustering", 7, &ImprovedClustered::clustering>,
                           Field<"rest_mass", 8, &ImprovedClustered::rest_mass>,
                           Field<"rest_groups", 9, &ImprovedClustered::rest_groups>>;
};

struct Cast {
  std::variant<std::monostate, Tensor, Text> surrogates;
  std::optional<Tensor> gate;
  int32_t clustering = 0;
  int32_t cluster_size = 0;
  int32_t attention_function = 0;
  int32_t gate_temperature = 0;
  int32_t head_clustering = 0;

  using Fields = FieldList<OneOf<&Cast::surrogates, Case<"surrogate_tokens", 1>, Case<"layer", 2>>,
                           Field<"gate", 3, &Cast::gate>, Field<"clustering", 4, &Cast::clustering>,
                           Field<"cluster_size", 5, &Cast::cluster_size>,
                           Field<"attention_function", 6, &Cast::attention_function>,
                           Field<"gate_temperature", 7, &Cast::gate_temperature>,
                           Field<"head_clustering", 8, &Cast::head_clustering>>;
};

struct Automatic {
  Repeated<int32_t> allowed;
  double max_relative_error = 0;

  using Fields = FieldList<Field<"allowed", 1, &Automatic::allowed, 16>,
                           Field<"max_relative_error", 2, &Automatic::max_relative_error>>;
};

// The oneof that both requests have, under different numbers.
using Kernel = std::variant<std::monostate, Vanilla, Clustered, ImprovedClustered, Cast, Automatic>;

// proto/castor/v1/attention.proto

struct Window {
  std::optional<int64_t> left;
  std::optional<int64_t> right;

  using Fields = FieldList<Field<"left", 1, &Window::left>, Field<"right", 2, &Window::right>>;
};

struct Positions {
  Repeated<int64_t> query;
  Repeated<int64_t> key;
  std::optional<Window> window;
  int64_t always_visible = 0;
  Repeated<float> alibi_slopes;
  std::optional<Tensor> relative_bias;

  using Fields = FieldList<Field<"query", 1, &Positions::query, kSequences>,
                           Field<"key", 2, &Positions::key, kSequences>,
                           Field<"window", 3, &Positions::window>,
                           Field<"always_visible", 4, &Positions::always_visible>,
                           Field<"alibi_slopes", 5, &Positions::alibi_slopes, kValues>,
                           Field<"relative_bias", 6, &Positions::relative_bias>>;
};

struct AttendRequest {
  Text request_id;
  std::optional<Tensor> query;
  std::optional<Tensor> key;
  std::optional<Tensor> value;
  Repeated<int64_t> query_lengths;
  Repeated<int64_t> key_lengths;
  std::optional<double> softmax_scale;
  int32_t priority = 0;
  int32_t fidelity_rows = 0;
  bool check_finite = false;
  Kernel kernel;
  std::optional<SharedMemoryRef> output;
  bool return_log_sum_exp = false;
  bool value_is_key_prefix = false;
  int64_t value_dim = 0;
  std::optional<Positions> positions;
  double softcap = 0;
  std::optional<Tensor> key_bias;
  int32_t timeout_ms = 0;

  using Fields =
      FieldList<Field<"request_id", 1, &AttendRequest::request_id>,
                Field<"query", 2, &AttendRequest::query>, Field<"key", 3, &AttendRequest::key>,
                Field<"value", 4, &AttendRequest::value>,
                Field<"query_lengths", 5, &AttendRequest::query_lengths, kSequences>,
                Field<"key_lengths", 6, &AttendRequest::key_lengths, kSequences>,
                Field<"softmax_scale", 7, &AttendRequest::softmax_scale>,
                Field<"priority", 8, &AttendRequest::priority>,
                Field<"fidelity_rows", 9, &AttendRequest::fidelity_rows>,
                Field<"check_finite", 10, &AttendRequest::check_finite>,
                OneOf<&AttendRequest::kernel, Case<"vanilla", 11>, Case<"clustered", 12>,
                      Case<"improved_clustered", 13>, Case<"cast", 14>, Case<"automatic", 15>>,
                Field<"output", 16, &AttendRequest::output>,
                Field<"return_log_sum_exp", 17, &AttendRequest::return_log_sum_exp>,
                Field<"value_is_key_prefix", 18, &AttendRequest::value_is_key_prefix>,
                Field<"value_dim", 19, &AttendRequest::value_dim>,
                Field<"positions", 20, &AttendRequest::positions>,
                Field<"softcap", 21, &AttendRequest::softcap>,
                Field<"key_bias", 22, &AttendRequest::key_bias>,
                Field<"timeout_ms", 23, &AttendRequest::timeout_ms>>;
};

// proto/castor/v1/encoder.proto

struct TextBatch {
  Repeated<Text> texts;
  Repeated<Text> pairs;
  bool allow_special_tokens = false;

  using Fields = FieldList<Field<"texts", 1, &TextBatch::texts, kSequences>,
                           Field<"pairs", 2, &TextBatch::pairs, kSequences>,
                           Field<"allow_special_tokens", 3, &TextBatch::allow_special_tokens>>;
};

struct TokenBatch {
  Repeated<int64_t> ids;
  Repeated<int64_t> type_ids;
  Repeated<int64_t> lengths;

  using Fields = FieldList<Field<"ids", 1, &TokenBatch::ids, kTokens>,
                           Field<"type_ids", 2, &TokenBatch::type_ids, kTokens>,
                           Field<"lengths", 3, &TokenBatch::lengths, kSequences>>;
};

struct EmbeddingBatch {
  std::optional<Tensor> values;
  Repeated<int64_t> lengths;

  using Fields = FieldList<Field<"values", 1, &EmbeddingBatch::values>,
                           Field<"lengths", 2, &EmbeddingBatch::lengths, kSequences>>;
};

struct SpanRange {
  int32_t sequence = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool pair = false;

  using Fields =
      FieldList<Field<"sequence", 1, &SpanRange::sequence>, Field<"begin", 2, &SpanRange::begin>,
                Field<"end", 3, &SpanRange::end>, Field<"pair", 4, &SpanRange::pair>>;
};

struct Spans {
  int32_t unit = 0;
  Repeated<SpanRange> ranges;

  using Fields =
      FieldList<Field<"unit", 1, &Spans::unit>, Field<"ranges", 2, &Spans::ranges, kSpans>>;
};

// The fields that requests for texts have in common, under the same numbers.
struct TextOptions {
  Text request_id;
  Text model;
  std::optional<bool> truncate;
  int32_t priority = 0;
  std::optional<Text> prompt_name;
  int32_t truncation_side = 0;
  int32_t max_tokens = 0;
  int32_t timeout_ms = 0;
  std::optional<Text> prompt;

  template <typename... Others>
  using With = FieldList<
      Field<"request_id", 1, &TextOptions::request_id>, Field<"model", 2, &TextOptions::model>,
      Field<"truncate", 15, &TextOptions::truncate>, Field<"priority", 16, &TextOptions::priority>,
      Field<"prompt_name", 19, &TextOptions::prompt_name>,
      Field<"truncation_side", 20, &TextOptions::truncation_side>,
      Field<"max_tokens", 21, &TextOptions::max_tokens>,
      Field<"timeout_ms", 22, &TextOptions::timeout_ms>, Field<"prompt", 26, &TextOptions::prompt>,
      Others...>;
};

struct EncodeRequest : TextOptions {
  std::variant<std::monostate, TextBatch, TokenBatch, EmbeddingBatch> input;
  Kernel kernel;
  int32_t output = 0;
  int32_t pooling = 0;
  std::optional<bool> normalize;
  int32_t dimensions = 0;
  std::optional<bool> check_finite;
  std::optional<Spans> spans;
  Repeated<int32_t> outputs;
  int32_t output_type = 0;
  std::optional<Tensor> ranges;
  Text task;

  using Fields = With<
      OneOf<&EncodeRequest::input, Case<"texts", 3>, Case<"tokens", 4>, Case<"embeddings", 5>>,
      OneOf<&EncodeRequest::kernel, Case<"vanilla", 6>, Case<"clustered", 7>,
            Case<"improved_clustered", 8>, Case<"cast", 9>, Case<"automatic", 10>>,
      Field<"output", 11, &EncodeRequest::output>, Field<"pooling", 12, &EncodeRequest::pooling>,
      Field<"normalize", 13, &EncodeRequest::normalize>,
      Field<"dimensions", 14, &EncodeRequest::dimensions>,
      Field<"check_finite", 17, &EncodeRequest::check_finite>,
      Field<"spans", 18, &EncodeRequest::spans>, Field<"outputs", 23, &EncodeRequest::outputs, 16>,
      Field<"output_type", 24, &EncodeRequest::output_type>,
      Field<"ranges", 25, &EncodeRequest::ranges>, Field<"task", 28, &EncodeRequest::task>>;
};

struct RerankRequest : TextOptions {
  Text query;
  Repeated<Text> documents;
  int32_t top_n = 0;
  Kernel kernel;
  bool return_documents = false;
  bool allow_special_tokens = false;
  Text instruction;
  Text task;

  using Fields = With<Field<"query", 3, &RerankRequest::query>,
                      Field<"documents", 4, &RerankRequest::documents, kSequences>,
                      Field<"top_n", 5, &RerankRequest::top_n>,
                      OneOf<&RerankRequest::kernel, Case<"vanilla", 6>, Case<"clustered", 7>,
                            Case<"improved_clustered", 8>, Case<"cast", 9>, Case<"automatic", 10>>,
                      Field<"return_documents", 11, &RerankRequest::return_documents>,
                      Field<"allow_special_tokens", 12, &RerankRequest::allow_special_tokens>,
                      Field<"instruction", 27, &RerankRequest::instruction>,
                      Field<"task", 28, &RerankRequest::task>>;
};

struct TokenizeRequest : TextOptions {
  std::optional<TextBatch> texts;
  std::optional<bool> add_special_tokens;
  bool return_tokens = false;

  using Fields = With<Field<"texts", 3, &TokenizeRequest::texts>,
                      Field<"add_special_tokens", 4, &TokenizeRequest::add_special_tokens>,
                      Field<"return_tokens", 5, &TokenizeRequest::return_tokens>>;
};

struct DetokenizeRequest {
  Text request_id;
  Text model;
  std::optional<TokenBatch> tokens;
  bool skip_special_tokens = false;
  int32_t priority = 0;
  int32_t timeout_ms = 0;

  using Fields = FieldList<Field<"request_id", 1, &DetokenizeRequest::request_id>,
                           Field<"model", 2, &DetokenizeRequest::model>,
                           Field<"tokens", 3, &DetokenizeRequest::tokens>,
                           Field<"skip_special_tokens", 4, &DetokenizeRequest::skip_special_tokens>,
                           Field<"priority", 16, &DetokenizeRequest::priority>,
                           Field<"timeout_ms", 22, &DetokenizeRequest::timeout_ms>>;
};

}  // namespace castor::server::wire
