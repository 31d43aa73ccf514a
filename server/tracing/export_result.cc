#include "server/tracing/export_result.h"

#include <algorithm>
#include <limits>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"
#include "server/errors.h"
#include "server/services/message.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxShownBytes = 256;
constexpr int64_t kMaxDelaySeconds = 3600;

// RetryInfo's delay.
std::optional<milliseconds> DelayOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& detail : details.details()) {
    if (!detail.UnpackTo(&retry)) continue;
    const int64_t seconds = std::clamp<int64_t>(retry.retry_delay().seconds(), 0, kMaxDelaySeconds);
    return milliseconds(1000 * seconds + std::max(retry.retry_delay().nanos(), 0) / 1'000'000);
  }
  return std::nullopt;
}

bool MayBeTriedAgain(grpc::StatusCode code, bool says_when) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return says_when;
    default:
      return false;
  }
}

}  // namespace

ExportResult ReadExportResult(const grpc::Status& status, const grpc::ByteBuffer& answer) {
  ExportResult result;
  if (status.ok()) {
    opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse response;
    // An answer that does not parse was still an OK.
    if (ParseMessage(answer, &response).ok()) {
      result.rejected = std::max<int64_t>(response.partial_success().rejected_spans(), 0);
      result.message = Printable(response.partial_success().error_message(), kMaxShownBytes);
    }
    return result;
  }
  result.delay = DelayOf(status);
  result.kind = MayBeTriedAgain(status.error_code(), result.delay.has_value())
                    ? ExportResult::Kind::kTryAgain
                    : ExportResult::Kind::kRefused;
  result.message = Printable(status.error_message(), kMaxShownBytes);
  return result;
}

}  // namespace castor::server
