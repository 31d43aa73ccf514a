#include "server/codec/encoder_codec.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"
#include "server/codec/convert.h"
#include "server/codec/response.h"

namespace castor::server {
namespace {

absl::Status ConvertInput(wire::EncodeRequest& from, RequestRegions& regions, EncodeRequest* out) {
  if (auto* texts = std::get_if<wire::TextBatch>(&from.input)) {
    out->input = TextInput{.texts = std::move(texts->texts),
                           .pairs = std::move(texts->pairs),
                           .allow_special_tokens = texts->allow_special_tokens};
    return absl::OkStatus();
  }
  if (auto* tokens = std::get_if<wire::TokenBatch>(&from.input)) {
    out->input = TokenInput{.ids = std::move(tokens->ids),
                            .type_ids = std::move(tokens->type_ids),
                            .lengths = std::move(tokens->lengths)};
    return absl::OkStatus();
  }
  if (auto* embeddings = std::get_if<wire::EmbeddingBatch>(&from.input)) {
    auto& input = out->input.emplace<EmbeddingInput>();
    input.lengths = std::move(embeddings->lengths);
    return ConvertTensor(embeddings->values, "embeddings.values", regions, &input.values);
  }
  return InvalidField("input", "missing: give texts, tokens or embeddings");
}

absl::Status ConvertOutputs(const std::vector<int32_t>& outputs, std::vector<EncodeOutput>* out) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string field = FieldAt("outputs", i);
    if (outputs[i] == v1::ENCODE_OUTPUT_DEFAULT) return InvalidField(field, "must name an output");
    absl::Status status = ConvertEnum(kEncodeOutputs, outputs[i], field, &out->emplace_back());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ConvertSpans(const std::optional<wire::Spans>& spans, Spans* out) {
  if (!spans.has_value()) return absl::OkStatus();
  if (spans->ranges.empty()) return InvalidField("spans.ranges", "needs at least one entry");
  out->ranges.reserve(spans->ranges.size());
  for (const wire::SpanRange& range : spans->ranges) {
    out->ranges.push_back({range.sequence, range.begin, range.end, range.pair});
  }
  return ConvertEnum(kSpanUnits, spans->unit, "spans.unit", &out->unit);
}

}  // namespace

absl::Status ConvertEncodeRequest(wire::EncodeRequest from, DecodedEncode* decoded) {
  EncodeRequest* out = &decoded->request;
  RequestRegions& regions = decoded->regions;
  if (absl::Status s = ConvertInput(from, regions, out); !s.ok()) return s;
  if (absl::Status s = ConvertKernel(from.kernel, CastTensorsFrom::kModel, regions, &out->kernel);
      !s.ok()) {
    return s;
  }
  if (out->kernel.has_value() && std::holds_alternative<Automatic>(*out->kernel) &&
      std::get<Automatic>(*out->kernel).max_relative_error != 0) {
    return InvalidField("automatic.max_relative_error", "is for attention, not for encoders");
  }
  absl::Status enums = ConvertEnum(kEncodeOutputs, from.output, "output", &out->output);
  enums.Update(ConvertOutputs(from.outputs, &out->outputs));
  enums.Update(ConvertEnum(kOutputTypes, from.output_type, "output_type", &out->output_type));
  enums.Update(ConvertEnum(kPoolings, from.pooling, "pooling", &out->pooling));
  enums.Update(ConvertEnum(kTruncationSides, from.truncation_side, "truncation_side",
                           &out->truncation_side));
  enums.Update(ConvertPriority(from.priority, &out->call));
  enums.Update(ConvertTimeout(from.timeout_ms, &decoded->timeout));
  enums.Update(ConvertSpans(from.spans, &out->spans));
  if (!enums.ok()) return enums;
  if (from.ranges.has_value()) {
    absl::Status s = ConvertTensor(from.ranges, "ranges", regions, &out->ranges.emplace());
    if (!s.ok()) return s;
  }
  if (from.prompt_name.has_value()) out->prompt_name.emplace(*from.prompt_name);
  if (from.prompt.has_value()) out->prompt.emplace(*from.prompt);
  out->model = from.model;
  out->task = from.task;
  out->normalize = from.normalize;
  out->dimensions = from.dimensions;
  out->max_tokens = from.max_tokens;
  out->truncate = from.truncate.value_or(out->truncate);
  out->check_finite = from.check_finite.value_or(out->check_finite);
  return absl::OkStatus();
}

namespace {

void FillSparse(const SparseRows& from, v1::SparseRows* out) {
  out->mutable_indices()->Assign(from.indices.begin(), from.indices.end());
  out->mutable_values()->Assign(from.values.begin(), from.values.end());
  out->mutable_lengths()->Assign(from.lengths.begin(), from.lengths.end());
}

TensorField FieldOf(OutputRows rows) {
  v1::OutputRows others;
  others.set_output(ToWire(kEncodeOutputs, rows.output));
  others.mutable_lengths()->Assign(rows.lengths.begin(), rows.lengths.end());
  if (rows.sparse.has_value()) FillSparse(*rows.sparse, others.mutable_sparse());
  return {.number = v1::OutputRows::kValuesFieldNumber,
          .tensor = std::move(rows.values),
          .message = v1::EncodeResponse::kOutputsFieldNumber,
          .others = others.SerializeAsString()};
}

}  // namespace

absl::Status DecodeEncodeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                 DecodedEncode* out) {
  wire::EncodeRequest message;
  if (absl::Status s = ReadRequest(bytes, scope, &message, out); !s.ok()) return s;
  return ConvertEncodeRequest(std::move(message), out);
}

grpc::ByteBuffer EncodeEncodeResponse(std::string_view request_id, EncodeResult result,
                                      double total_us) {
  v1::EncodeResponse message;
  message.set_request_id(request_id.data(), request_id.size());
  message.set_model(std::move(result.model));
  message.mutable_lengths()->Assign(result.lengths.begin(), result.lengths.end());
  message.mutable_token_counts()->Assign(result.token_counts.begin(), result.token_counts.end());
  message.mutable_truncated()->Assign(result.truncated.begin(), result.truncated.end());
  message.mutable_spans()->Reserve(static_cast<int>(result.spans.size()));
  for (const PooledSpan& span : result.spans) {
    v1::PooledSpan* const added = message.add_spans();
    added->set_begin(span.begin);
    added->set_end(span.end);
    added->set_truncated(span.truncated);
  }
  message.set_prompt_name(std::move(result.prompt_name));
  for (std::string& label : result.labels) message.add_labels(std::move(label));
  FillReports(result.report, total_us, &message);
  std::vector<TensorField> fields;
  for (OutputRows& rows : result.outputs) fields.push_back(FieldOf(std::move(rows)));
  if (result.sparse.has_value()) {
    FillSparse(*result.sparse, message.mutable_sparse());
    result.sparse.reset();
  } else if (fields.empty()) {
    fields.push_back({v1::EncodeResponse::kOutputFieldNumber, std::move(result.output)});
  }
  return WithTensors(message, fields);
}

// ---- Tokenize and Detokenize

namespace {

template <typename Response>
Response Begin(std::string_view request_id, const EncodeResult& result) {
  Response message;
  message.set_request_id(request_id.data(), request_id.size());
  message.set_model(result.model);
  return message;
}

}  // namespace

absl::Status DecodeTokenizeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                   DecodedEncode* out) {
  wire::TokenizeRequest from;
  if (absl::Status s = ReadRequest(bytes, scope, &from, out); !s.ok()) return s;
  if (from.max_tokens != 0 && !from.truncate.value_or(false)) {
    return InvalidField("max_tokens", "requires truncate");
  }
  wire::EncodeRequest request;
  static_cast<wire::TextOptions&>(request) = from;
  request.input = from.texts.value_or(wire::TextBatch());
  request.truncate = from.truncate.value_or(false);
  out->request.instead = TokenizeOnly{.add_special_tokens = from.add_special_tokens.value_or(true),
                                      .return_tokens = from.return_tokens};
  return ConvertEncodeRequest(std::move(request), out);
}

absl::Status DecodeDetokenizeRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                     DecodedEncode* out) {
  wire::DetokenizeRequest from;
  if (absl::Status s = ReadRequest(bytes, scope, &from, out); !s.ok()) return s;
  wire::EncodeRequest request;
  request.model = from.model;
  request.input = from.tokens.value_or(wire::TokenBatch());
  request.priority = from.priority;
  request.timeout_ms = from.timeout_ms;
  out->request.instead = DetokenizeOnly{.skip_special_tokens = from.skip_special_tokens};
  return ConvertEncodeRequest(std::move(request), out);
}

grpc::ByteBuffer EncodeTokenizeResponse(std::string_view request_id, EncodeResult result) {
  auto message = Begin<v1::TokenizeResponse>(request_id, result);
  Tokenized& from = *result.tokenized;
  message.mutable_ids()->Assign(from.ids.begin(), from.ids.end());
  message.mutable_type_ids()->Assign(from.type_ids.begin(), from.type_ids.end());
  message.mutable_lengths()->Assign(from.lengths.begin(), from.lengths.end());
  message.mutable_special()->Assign(from.special.begin(), from.special.end());
  message.mutable_pair()->Assign(from.pair.begin(), from.pair.end());
  for (const Tokenized::Range& range : from.bytes) {
    message.add_byte_begins(range.begin);
    message.add_byte_ends(range.end);
  }
  for (const Tokenized::Range& range : from.characters) {
    message.add_character_begins(range.begin);
    message.add_character_ends(range.end);
  }
  for (std::string& token : from.tokens) message.add_tokens(std::move(token));
  message.mutable_truncated()->Assign(from.truncated.begin(), from.truncated.end());
  message.set_prompt_name(std::move(result.prompt_name));
  return WithTensors(message, {});
}

grpc::ByteBuffer EncodeDetokenizeResponse(std::string_view request_id, EncodeResult result) {
  auto message = Begin<v1::DetokenizeResponse>(request_id, result);
  for (std::string& text : result.tokenized->texts) message.add_texts(std::move(text));
  return WithTensors(message, {});
}

}  // namespace castor::server
