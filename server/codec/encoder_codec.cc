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

absl::Status ConvertOutput(int32_t output, std::optional<EncodeOutput>* out) {
  if (output == v1::ENCODE_OUTPUT_DEFAULT) return absl::OkStatus();
  return ConvertEnum(kEncodeOutputs, output, "output", &out->emplace());
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

absl::Status ConvertPooling(int32_t pooling, std::optional<Pooling>* out) {
  if (pooling == v1::POOLING_DEFAULT) return absl::OkStatus();
  return ConvertEnum(kPoolings, pooling, "pooling", &out->emplace());
}

absl::Status ConvertSpans(const std::optional<wire::Spans>& spans, Spans* out) {
  if (!spans.has_value()) return absl::OkStatus();
  if (spans->ranges.empty()) return InvalidField("spans.ranges", "needs at least one entry");
  out->ranges.reserve(spans->ranges.size());
  for (const wire::SpanRange& range : spans->ranges) {
    out->ranges.push_back({range.sequence, range.begin, range.end, range.pair});
  }
  if (spans->unit == v1::Spans::UNIT_DEFAULT) return absl::OkStatus();
  return ConvertEnum(kSpanUnits, spans->unit, "spans.unit", &out->unit.emplace());
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
  if (absl::Status s = ConvertOutput(from.output, &out->output); !s.ok()) return s;
  if (absl::Status s = ConvertOutputs(from.outputs, &out->outputs); !s.ok()) return s;
  if (absl::Status s =
          ConvertEnum(kOutputTypes, from.output_type, "output_type", &out->output_type);
      !s.ok()) {
    return s;
  }
  if (from.ranges.has_value()) {
    absl::Status s = ConvertTensor(from.ranges, "ranges", regions, &out->ranges.emplace());
    if (!s.ok()) return s;
  }
  if (absl::Status s = ConvertPooling(from.pooling, &out->pooling); !s.ok()) return s;
  if (from.truncation_side != v1::TRUNCATION_SIDE_DEFAULT) {
    absl::Status s = ConvertEnum(kTruncationSides, from.truncation_side, "truncation_side",
                                 &out->truncation_side.emplace());
    if (!s.ok()) return s;
  }
  if (absl::Status s = ConvertPriority(from.priority, &out->call); !s.ok()) return s;
  if (absl::Status s = ConvertTimeout(from.timeout_ms, &decoded->timeout); !s.ok()) return s;
  if (absl::Status s = ConvertSpans(from.spans, &out->spans); !s.ok()) return s;
  if (from.prompt_name.has_value()) out->prompt_name.emplace(*from.prompt_name);
  if (from.prompt.has_value()) out->prompt.emplace(*from.prompt);
  out->model = from.model;
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
  out->request = EncodeRequest();
  out->slices = SliceView(bytes, scope.budget);
  out->regions = RequestRegions(scope);
  out->timeout.reset();
  wire::EncodeRequest message;
  absl::Status status = wire::Parse(&out->slices, &message);
  status.Update(ConvertRequestId(message.request_id, &out->request.call));
  if (!status.ok()) return status;
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

}  // namespace castor::server
