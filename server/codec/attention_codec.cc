#include "server/codec/attention_codec.h"

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "engine/base/error.h"
#include "server/codec/convert.h"
#include "server/codec/response.h"

namespace castor::server {
namespace {

constexpr size_t kMaxRank = 8;

// The output's size in bytes, from the query's shape and the values' dimension; nullopt if they
// make no sense, which the engine then refuses.
std::optional<int64_t> OutputBytes(const AttentionRequest& request) {
  const std::vector<int64_t>& query = request.query.shape;
  const std::vector<int64_t>& value = request.value.shape;
  if (query.empty() || query.size() > kMaxRank) return std::nullopt;
  if (value.empty() && !request.value_is_key_prefix) return std::nullopt;
  std::vector<int64_t> shape = query;
  shape.back() = request.value_is_key_prefix ? request.value_dim : value.back();
  return NumBytes(request.query.dtype, shape);
}

absl::Status ConvertOutput(const wire::SharedMemoryRef& ref, DecodedAttend* out) {
  if (absl::Status s = out->regions.Resolve(ref, "output", &out->output.emplace()); !s.ok()) {
    return s;
  }
  const std::optional<int64_t> needed = OutputBytes(out->request);
  if (!needed || *needed == ref.size) return absl::OkStatus();
  return InvalidField("output.size", "is " + std::to_string(ref.size) + ", but the output has " +
                                         std::to_string(*needed) + " bytes");
}

// Exact kernels have no error to measure, and CAST's cannot be measured against exact attention.
bool MeasuresFidelity(const Kernel& kernel) {
  return !std::holds_alternative<Vanilla>(kernel) && !std::holds_alternative<Cast>(kernel);
}

absl::Status ConvertPositions(wire::Positions from, RequestRegions& regions, Positions* out) {
  out->query = std::move(from.query);
  out->key = std::move(from.key);
  if (from.window.has_value()) {
    out->window.left = from.window->left.value_or(-1);
    out->window.right = from.window->right.value_or(-1);
  }
  out->window.always_visible = from.always_visible;
  out->alibi_slopes = std::move(from.alibi_slopes);
  if (!from.relative_bias.has_value()) return absl::OkStatus();
  return ConvertTensor(*from.relative_bias, "positions.relative_bias", regions,
                       &out->relative_bias.emplace());
}

// Adds the answer's log-sum-exp, if it has one.
std::span<TensorField> WithLogSumExp(std::optional<TensorResult> log_sum_exp,
                                     std::vector<TensorField>* fields) {
  if (log_sum_exp.has_value()) {
    fields->push_back({v1::AttendResponse::kLogSumExpFieldNumber, *std::move(log_sum_exp)});
  }
  return *fields;
}

// The answer without its tensors.
v1::AttendResponse Answer(std::string_view request_id, const AttentionResult& result,
                          double total_us) {
  v1::AttendResponse message;
  message.set_request_id(request_id.data(), request_id.size());
  FillReports(result.report, total_us, &message);
  if (result.report.fidelity.has_value()) {
    message.mutable_fidelity()->set_rows(result.report.fidelity->rows);
    message.mutable_fidelity()->set_relative_error(result.report.fidelity->relative_error);
    message.mutable_fidelity()->set_probe_us(result.report.fidelity->probe_us);
  }
  return message;
}

}  // namespace

absl::Status ConvertAttendRequest(wire::AttendRequest from, DecodedAttend* decoded) {
  AttentionRequest* out = &decoded->request;
  RequestRegions& regions = decoded->regions;
  if (absl::Status s = ConvertTensor(from.query, "query", regions, &out->query); !s.ok()) return s;
  if (absl::Status s = ConvertTensor(from.key, "key", regions, &out->key); !s.ok()) return s;
  // The engine checks which of the two a request must have.
  if (from.value.has_value() || !from.value_is_key_prefix) {
    absl::Status s = ConvertTensor(from.value, "value", regions, &out->value);
    if (!s.ok()) return s;
  }
  if (absl::Status s = ConvertPriority(from.priority, &out->call); !s.ok()) return s;
  if (absl::Status s = ConvertTimeout(from.timeout_ms, &decoded->timeout); !s.ok()) return s;
  std::optional<Kernel> kernel;
  if (absl::Status s = ConvertKernel(from.kernel, CastTensorsFrom::kRequest, regions, &kernel);
      !s.ok()) {
    return s;
  }
  if (kernel.has_value()) out->kernel = *std::move(kernel);
  if (from.fidelity_rows != 0 && !MeasuresFidelity(out->kernel)) {
    return InvalidField("fidelity_rows", "applies only to approximate kernels and automatic");
  }
  out->query_lengths = std::move(from.query_lengths);
  out->key_lengths = std::move(from.key_lengths);
  out->softmax_scale = from.softmax_scale;
  out->fidelity_rows = from.fidelity_rows;
  out->check_finite = from.check_finite;
  out->return_log_sum_exp = from.return_log_sum_exp;
  out->value_is_key_prefix = from.value_is_key_prefix;
  out->value_dim = from.value_dim;
  out->softcap = from.softcap;
  if (from.positions.has_value()) {
    absl::Status s = ConvertPositions(*std::move(from.positions), regions, &out->positions);
    if (!s.ok()) return s;
  }
  if (from.key_bias.has_value()) {
    absl::Status s = ConvertTensor(*from.key_bias, "key_bias", regions, &out->key_bias.emplace());
    if (!s.ok()) return s;
  }
  return from.output.has_value() ? ConvertOutput(*from.output, decoded) : absl::OkStatus();
}

absl::Status DecodeAttendRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope,
                                 DecodedAttend* out) {
  wire::AttendRequest message;
  if (absl::Status s = ReadRequest(bytes, scope, &message, out); !s.ok()) return s;
  return ConvertAttendRequest(std::move(message), out);
}

grpc::ByteBuffer EncodeAttendResponse(std::string_view request_id, AttentionResult result,
                                      double total_us) {
  const v1::AttendResponse message = Answer(request_id, result, total_us);
  std::vector<TensorField> fields;
  fields.push_back({v1::AttendResponse::kOutputFieldNumber, std::move(result.output)});
  return WithTensors(message, WithLogSumExp(std::move(result.log_sum_exp), &fields));
}

grpc::ByteBuffer EncodeAttendResponse(std::string_view request_id, AttentionResult result,
                                      const OutputRange& output, double total_us) {
  v1::AttendResponse message = Answer(request_id, result, total_us);
  FillTensor(result.output, message.mutable_output());
  v1::SharedMemoryRef* ref = message.mutable_output()->mutable_shared_memory();
  ref->set_region(output.region->info().name);
  ref->set_offset(output.offset);
  ref->set_size(output.file.size);
  std::vector<TensorField> fields;
  return WithTensors(message, WithLogSumExp(std::move(result.log_sum_exp), &fields));
}

}  // namespace castor::server
