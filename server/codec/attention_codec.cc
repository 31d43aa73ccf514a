#include "server/codec/attention_codec.h"

#include <utility>

#include "castor/v1/attention.pb.h"
#include "engine/base/error.h"
#include "server/codec/convert.h"
#include "server/codec/response.h"

namespace castor::server {
namespace {

absl::Status ConvertRequest(wire::AttendRequest from, AttentionRequest* out) {
  if (absl::Status s = ConvertTensor(from.query, "query", &out->query); !s.ok()) return s;
  if (absl::Status s = ConvertTensor(from.key, "key", &out->key); !s.ok()) return s;
  if (absl::Status s = ConvertTensor(from.value, "value", &out->value); !s.ok()) return s;
  if (absl::Status s = ConvertPriority(from.priority, &out->call); !s.ok()) return s;
  std::optional<Kernel> kernel;
  if (absl::Status s = ConvertKernel(from.kernel, CastInputs::kRequired, &kernel); !s.ok()) {
    return s;
  }
  if (kernel.has_value()) out->kernel = *std::move(kernel);
  out->query_lengths = std::move(from.query_lengths);
  out->key_lengths = std::move(from.key_lengths);
  out->softmax_scale = from.softmax_scale;
  out->fidelity_rows = from.fidelity_rows;
  out->check_finite = from.check_finite;
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeAttendRequest(const grpc::ByteBuffer& bytes, DecodedAttend* out) {
  out->request = AttentionRequest();
  out->slices = SliceView(bytes);
  wire::AttendRequest message;
  absl::Status status = wire::Parse(&out->slices, &message);
  status.Update(ConvertRequestId(message.request_id, &out->request.call));
  if (!status.ok()) return status;
  return ConvertRequest(std::move(message), &out->request);
}

grpc::ByteBuffer EncodeAttendResponse(std::string_view request_id, AttentionResult result,
                                      double total_us) {
  v1::AttendResponse message;
  message.set_request_id(request_id.data(), request_id.size());
  FillReports(result.report, total_us, &message);
  if (result.report.fidelity.has_value()) {
    message.mutable_fidelity()->set_rows(result.report.fidelity->rows);
    message.mutable_fidelity()->set_relative_error(result.report.fidelity->relative_error);
    message.mutable_fidelity()->set_probe_us(result.report.fidelity->probe_us);
  }
  return WithTensor(message, v1::AttendResponse::kOutputFieldNumber, std::move(result.output));
}

}  // namespace castor::server
