#include "tests/unit/server/codec/twin_convert.h"

#include <string>

#include "engine/base/error.h"

namespace castor::server::twin {
namespace {

using Wide = __int128;  // wide enough for every sum and product here

absl::StatusOr<FileRange> ToEngine(const v1::SharedMemoryRef& ref, const std::string& field) {
  for (const TwinRegion& region : kTwinRegions) {
    if (ref.region() != region.name) continue;
    if (ref.offset() < 0 || ref.offset() > region.size) {
      return InvalidField(field + ".offset", "outside");
    }
    if (ref.size() < 0 || Wide{ref.offset()} + ref.size() > region.size) {
      return InvalidField(field + ".size", "outside");
    }
    return FileRange{kTwinDescriptor, region.offset + ref.offset(), ref.size()};
  }
  return InvalidField(Reason::kRegionNotFound, field + ".region", "no such region");
}

// The size of the output, or nothing if the shapes give none that fits in 64 bits.
std::optional<int64_t> OutputBytes(const AttentionRequest& request) {
  if (request.query.shape.empty() || request.query.shape.size() > 8) return std::nullopt;
  std::vector<int64_t> shape(request.query.shape.begin(), request.query.shape.end() - 1);
  if (request.value_is_key_prefix) {
    shape.push_back(request.value_dim);
  } else if (!request.value.shape.empty()) {
    shape.push_back(request.value.shape.back());
  } else {
    return std::nullopt;
  }
  shape.push_back(static_cast<int64_t>(SizeOf(request.query.dtype)));
  Wide bytes = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    bytes *= dimension;
    if (bytes > INT64_MAX) return std::nullopt;
  }
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<TensorInput> ToEngine(const v1::Tensor& tensor, const std::string& field) {
  TensorInput out;
  switch (tensor.dtype()) {
    case v1::FLOAT32:
      out.dtype = DType::kFloat32;
      break;
    case v1::FLOAT16:
      out.dtype = DType::kFloat16;
      break;
    case v1::BFLOAT16:
      out.dtype = DType::kBFloat16;
      break;
    case v1::INT32:
      out.dtype = DType::kInt32;
      break;
    case v1::INT8:
      out.dtype = DType::kInt8;
      break;
    case v1::UINT8:
      out.dtype = DType::kUInt8;
      break;
    case v1::INT64:
      out.dtype = DType::kInt64;
      break;
    default:
      return InvalidField(field + ".dtype", "no such type");
  }
  out.shape.assign(tensor.shape().begin(), tensor.shape().end());
  if (tensor.has_shared_memory()) {
    auto file = ToEngine(tensor.shared_memory(), field + ".shared_memory");
    if (!file.ok()) return file.status();
    out.file = *file;
    return out;
  }
  if (!tensor.has_raw()) return InvalidField(field + ".raw", "missing");
  out.pieces.push_back(std::as_bytes(std::span(tensor.raw())));
  return out;
}

absl::Status ToEngine(v1::Priority priority, CallContext* out) {
  switch (priority) {
    case v1::PRIORITY_DEFAULT:
    case v1::NORMAL:
      out->priority = Priority::kNormal;
      return absl::OkStatus();
    case v1::LOW:
      out->priority = Priority::kLow;
      return absl::OkStatus();
    case v1::HIGH:
      out->priority = Priority::kHigh;
      return absl::OkStatus();
    default:
      return InvalidField("priority", "no such priority");
  }
}

template <typename From>
absl::Status ToEngine(const From& from, const std::string& name, Clustered* out) {
  const bool hashes = from.clustering() != v1::QUERY_SPACE;
  if (!v1::QueryClustering_IsValid(from.clustering())) {
    return InvalidField(name + ".clustering", "no such value");
  }
  if (!hashes && from.bits() != 0) return InvalidField(name + ".bits", "hashes nothing");
  if (!hashes && from.has_hash_bias()) return InvalidField(name + ".hash_bias", "hashes nothing");
  out->clusters = from.clusters() == 0 ? 100 : from.clusters();
  out->iterations = from.iterations() == 0 ? (hashes ? 10 : 1) : from.iterations();
  out->bits = from.bits() == 0 ? 63 : from.bits();
  out->hash_bias = from.has_hash_bias() ? from.hash_bias() : true;
  out->seed = from.seed();
  if (!hashes) out->clustering = Clustered::Clustering::kQuerySpace;
  return absl::OkStatus();
}

absl::StatusOr<Kernel> ToEngine(const v1::Clustered& from) {
  Clustered out;
  if (absl::Status s = ToEngine(from, "clustered", &out); !s.ok()) return s;
  return Kernel(out);
}

absl::StatusOr<Kernel> ToEngine(const v1::ImprovedClustered& from) {
  ImprovedClustered out;
  if (absl::Status s = ToEngine(from, "improved_clustered", &out); !s.ok()) return s;
  out.topk = from.topk() == 0 ? 32 : from.topk();
  if (!v1::ImprovedClustered_RestMass_IsValid(from.rest_mass())) {
    return InvalidField("improved_clustered.rest_mass", "no such value");
  }
  if (from.rest_mass() == v1::ImprovedClustered::QUERY) {
    out.rest_mass = ImprovedClustered::RestMass::kQuery;
  }
  return Kernel(out);
}

absl::Status ToEngine(const v1::Cast& from, bool tensors_required, Cast* out) {
  switch (from.surrogates_case()) {
    case v1::Cast::kSurrogateTokens: {
      auto tokens = ToEngine(from.surrogate_tokens(), "cast.surrogate_tokens");
      if (!tokens.ok()) return tokens.status();
      out->surrogates = *tokens;
      break;
    }
    case v1::Cast::kLayer:
      out->surrogates = from.layer();
      break;
    case v1::Cast::SURROGATES_NOT_SET:
      if (tensors_required) return InvalidField("cast.surrogate_tokens", "missing");
  }
  if (from.has_gate()) {
    auto gate = ToEngine(from.gate(), "cast.gate");
    if (!gate.ok()) return gate.status();
    out->gate = *gate;
  } else if (tensors_required) {
    return InvalidField("cast.gate", "missing");
  }
  if (!v1::Cast::Clustering_IsValid(from.clustering())) {
    return InvalidField("cast.clustering", "no such value");
  }
  out->clustering = from.clustering() == v1::Cast::SINGLE_ASSIGNMENT_TOP_K
                        ? Cast::Clustering::kSingleAssignmentTopK
                        : Cast::Clustering::kTopK;
  out->cluster_size = from.cluster_size();
  if (!v1::Cast::AttentionFunction_IsValid(from.attention_function())) {
    return InvalidField("cast.attention_function", "no such value");
  }
  out->attention_function = from.attention_function() == v1::Cast::LAPLACE
                                ? Cast::AttentionFunction::kLaplace
                                : Cast::AttentionFunction::kSoftmax;
  if (!v1::Cast::GateTemperature_IsValid(from.gate_temperature())) {
    return InvalidField("cast.gate_temperature", "no such value");
  }
  out->gate_temperature = from.gate_temperature() == v1::Cast::NONE
                              ? Cast::GateTemperature::kNone
                              : Cast::GateTemperature::kSoftplus1;
  if (!v1::Cast::HeadClustering_IsValid(from.head_clustering())) {
    return InvalidField("cast.head_clustering", "no such value");
  }
  out->head_clustering = from.head_clustering() == v1::Cast::PER_HEAD
                             ? Cast::HeadClustering::kPerHead
                             : Cast::HeadClustering::kShared;
  return absl::OkStatus();
}

absl::Status ToEngine(const v1::Automatic& from, Automatic* out) {
  for (int i = 0; i < from.allowed_size(); ++i) {
    const std::string field = "automatic.allowed[" + std::to_string(i) + "]";
    switch (from.allowed(i)) {
      case v1::VANILLA:
        out->allowed.push_back(KernelName::kVanilla);
        break;
      case v1::CLUSTERED:
        out->allowed.push_back(KernelName::kClustered);
        break;
      case v1::IMPROVED_CLUSTERED:
        out->allowed.push_back(KernelName::kImprovedClustered);
        break;
      case v1::CAST:
        out->allowed.push_back(KernelName::kCast);
        break;
      default:
        return InvalidField(field, "no such kernel");
    }
  }
  out->max_relative_error = from.max_relative_error();
  return absl::OkStatus();
}

// Both requests use the same names for the cases of their oneof.
template <typename Request>
absl::StatusOr<std::optional<Kernel>> KernelOf(const Request& from, bool tensors_required) {
  if (from.has_vanilla()) return Kernel(Vanilla{from.vanilla().causal()});
  if (from.has_clustered()) return ToEngine(from.clustered());
  if (from.has_improved_clustered()) return ToEngine(from.improved_clustered());
  if (from.has_cast()) {
    Cast cast;
    absl::Status status = ToEngine(from.cast(), tensors_required, &cast);
    if (!status.ok()) return status;
    return Kernel(cast);
  }
  if (from.has_automatic()) {
    Automatic automatic;
    absl::Status status = ToEngine(from.automatic(), &automatic);
    if (!status.ok()) return status;
    return Kernel(automatic);
  }
  return std::optional<Kernel>();
}

absl::Status CheckRequestId(const std::string& request_id) {
  if (request_id.size() <= 256) return absl::OkStatus();
  return InvalidField("request_id", "longer than 256 bytes");
}

template <typename Ints>
std::vector<int64_t> ToVector(const Ints& values) {
  return {values.begin(), values.end()};
}

}  // namespace

absl::StatusOr<Attend> ToEngine(const v1::AttendRequest& message) {
  Attend attend;
  AttentionRequest& out = attend.request;
  absl::Status status = CheckRequestId(message.request_id());
  if (!status.ok()) return status;
  out.call.request_id = message.request_id();

  if (!message.has_query()) return InvalidField("query", "missing");
  auto query = ToEngine(message.query(), "query");
  if (!query.ok()) return query.status();
  out.query = *query;
  if (!message.has_key()) return InvalidField("key", "missing");
  auto key = ToEngine(message.key(), "key");
  if (!key.ok()) return key.status();
  out.key = *key;
  out.value_is_key_prefix = message.value_is_key_prefix();
  out.value_dim = message.value_dim();
  if (message.has_value()) {
    auto value = ToEngine(message.value(), "value");
    if (!value.ok()) return value.status();
    out.value = *value;
  } else if (!out.value_is_key_prefix) {
    return InvalidField("value", "missing");
  }

  out.query_lengths = ToVector(message.query_lengths());
  out.key_lengths = ToVector(message.key_lengths());
  if (message.has_softmax_scale()) out.softmax_scale = message.softmax_scale();
  status = ToEngine(message.priority(), &out.call);
  if (!status.ok()) return status;
  if (message.timeout_ms() < 0) return InvalidField("timeout_ms", "negative");
  if (message.timeout_ms() > 0) attend.timeout = std::chrono::milliseconds(message.timeout_ms());
  out.fidelity_rows = message.fidelity_rows();
  out.check_finite = message.check_finite();
  out.return_log_sum_exp = message.return_log_sum_exp();

  auto kernel = KernelOf(message, true);
  if (!kernel.ok()) return kernel.status();
  if (kernel->has_value()) out.kernel = **kernel;
  const bool approximates =
      message.has_clustered() || message.has_improved_clustered() || message.has_automatic();
  if (message.fidelity_rows() != 0 && !approximates) {
    return InvalidField("fidelity_rows", "of an exact kernel");
  }

  const v1::Positions& positions = message.positions();
  out.positions.query = ToVector(positions.query());
  out.positions.key = ToVector(positions.key());
  if (positions.window().has_left()) out.positions.window.left = positions.window().left();
  if (positions.window().has_right()) out.positions.window.right = positions.window().right();
  out.positions.window.always_visible = positions.always_visible();
  out.positions.alibi_slopes.assign(positions.alibi_slopes().begin(),
                                    positions.alibi_slopes().end());
  if (positions.has_relative_bias()) {
    auto table = ToEngine(positions.relative_bias(), "positions.relative_bias");
    if (!table.ok()) return table.status();
    out.positions.relative_bias = *table;
  }
  out.softcap = message.softcap();
  if (message.has_key_bias()) {
    auto bias = ToEngine(message.key_bias(), "key_bias");
    if (!bias.ok()) return bias.status();
    out.key_bias = *bias;
  }

  if (message.has_output()) {
    auto output = ToEngine(message.output(), "output");
    if (!output.ok()) return output.status();
    if (OutputBytes(out).value_or(output->size) != output->size) {
      return InvalidField("output.size", "not the output's");
    }
    attend.output = *output;
  }
  return attend;
}

absl::StatusOr<EncodeOutput> OutputOf(int number, const std::string& field) {
  switch (number) {
    case v1::POOLED:
      return EncodeOutput::kPooled;
    case v1::TOKEN_EMBEDDINGS:
      return EncodeOutput::kTokenEmbeddings;
    case v1::LOGITS:
      return EncodeOutput::kLogits;
    case v1::SCORES:
      return EncodeOutput::kScores;
    case v1::SPARSE:
      return EncodeOutput::kSparse;
    default:
      return InvalidField(field, "no such output");
  }
}

absl::StatusOr<Encode> ToEngine(const v1::EncodeRequest& message) {
  Encode encode;
  EncodeRequest& out = encode.request;
  absl::Status status = CheckRequestId(message.request_id());
  if (!status.ok()) return status;
  out.call.request_id = message.request_id();
  out.model = message.model();

  switch (message.input_case()) {
    case v1::EncodeRequest::kTexts: {
      TextInput input;
      for (const std::string& text : message.texts().texts()) input.texts.push_back(text);
      for (const std::string& pair : message.texts().pairs()) input.pairs.push_back(pair);
      input.allow_special_tokens = message.texts().allow_special_tokens();
      out.input = input;
      break;
    }
    case v1::EncodeRequest::kTokens: {
      TokenInput input;
      input.ids = ToVector(message.tokens().ids());
      input.type_ids = ToVector(message.tokens().type_ids());
      input.lengths = ToVector(message.tokens().lengths());
      out.input = input;
      break;
    }
    case v1::EncodeRequest::kEmbeddings: {
      if (!message.embeddings().has_values()) return InvalidField("embeddings.values", "missing");
      auto values = ToEngine(message.embeddings().values(), "embeddings.values");
      if (!values.ok()) return values.status();
      out.input =
          EmbeddingInput{.values = *values, .lengths = ToVector(message.embeddings().lengths())};
      break;
    }
    case v1::EncodeRequest::INPUT_NOT_SET:
      return InvalidField("input", "missing");
  }

  auto kernel = KernelOf(message, false);
  if (!kernel.ok()) return kernel.status();
  out.kernel = *kernel;
  if (message.has_automatic() && message.automatic().max_relative_error() != 0) {
    return InvalidField("automatic.max_relative_error", "of an encoder");
  }

  if (message.output() != 0) {
    auto output = OutputOf(message.output(), "output");
    if (!output.ok()) return output.status();
    out.output = *output;
  }
  for (int i = 0; i < message.outputs_size(); ++i) {
    if (i > 5) return InvalidField("outputs", "too many");
    auto output = OutputOf(message.outputs(i), "outputs[" + std::to_string(i) + "]");
    if (!output.ok()) return output.status();
    out.outputs.push_back(*output);
  }
  if (message.output_type() < 0 || message.output_type() > 7) {
    return InvalidField("output_type", "no such type");
  }
  if (message.output_type() != 0) {
    out.output_type = static_cast<OutputType>(message.output_type() - 1);
  }
  if (message.has_ranges()) {
    auto ranges = ToEngine(message.ranges(), "ranges");
    if (!ranges.ok()) return ranges.status();
    out.ranges = *ranges;
  }
  switch (message.pooling()) {
    case v1::POOLING_DEFAULT:
      break;
    case v1::MEAN:
      out.pooling = Pooling::kMean;
      break;
    case v1::CLS:
      out.pooling = Pooling::kCls;
      break;
    case v1::LAST_TOKEN:
      out.pooling = Pooling::kLastToken;
      break;
    case v1::MAXIMUM:
      out.pooling = Pooling::kMaximum;
      break;
    case v1::WEIGHTED_MEAN:
      out.pooling = Pooling::kWeightedMean;
      break;
    case v1::MEAN_SQRT_LENGTH:
      out.pooling = Pooling::kMeanSqrtLength;
      break;
    case v1::SEVERAL:
      out.pooling = Pooling::kSeveral;
      break;
    default:
      return InvalidField("pooling", "no such pooling");
  }
  switch (message.truncation_side()) {
    case v1::TRUNCATION_SIDE_DEFAULT:
      break;
    case v1::LEFT:
      out.truncation_side = Side::kLeft;
      break;
    case v1::RIGHT:
      out.truncation_side = Side::kRight;
      break;
    default:
      return InvalidField("truncation_side", "no such side");
  }
  out.max_tokens = message.max_tokens();
  status = ToEngine(message.priority(), &out.call);
  if (!status.ok()) return status;
  if (message.timeout_ms() < 0) return InvalidField("timeout_ms", "negative");
  if (message.timeout_ms() > 0) encode.timeout = std::chrono::milliseconds(message.timeout_ms());
  if (message.has_spans()) {
    if (message.spans().ranges().empty()) return InvalidField("spans.ranges", "missing");
    for (const v1::Spans::Range& range : message.spans().ranges()) {
      out.spans.ranges.push_back({range.sequence(), range.begin(), range.end(), range.pair()});
    }
    switch (message.spans().unit()) {
      case v1::Spans::UNIT_DEFAULT:
        break;
      case v1::Spans::CHARACTERS:
        out.spans.unit = Spans::Unit::kCharacters;
        break;
      case v1::Spans::BYTES:
        out.spans.unit = Spans::Unit::kBytes;
        break;
      case v1::Spans::TOKENS:
        out.spans.unit = Spans::Unit::kTokens;
        break;
      default:
        return InvalidField("spans.unit", "no such unit");
    }
  }
  if (message.has_prompt()) out.prompt = message.prompt();
  if (message.has_prompt_name()) out.prompt_name = message.prompt_name();
  if (message.has_normalize()) out.normalize = message.normalize();
  out.dimensions = message.dimensions();
  out.truncate = message.has_truncate() ? message.truncate() : true;
  out.check_finite = message.has_check_finite() ? message.check_finite() : true;
  return encode;
}

}  // namespace castor::server::twin
