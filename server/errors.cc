#include "server/errors.h"

#include <grpcpp/support/error_details.h>

#include <chrono>
#include <cstdint>
#include <random>

#include "engine/base/error.h"
#include "google/rpc/error_details.pb.h"
#include "server/logging.h"
#include "server/services/message.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;

// The caller's best reaction to an error, by reason.
enum class Retry {
  kNoHint,  // nothing beyond the code
  kNever,   // the same request will always be refused
  kLater,   // load; after the hint
};

// When to retry if the engine gave no hint of its own.
constexpr milliseconds kQueueFullRetry{100};
constexpr milliseconds kOutOfMemoryRetry{1000};

Retry RetryOf(const absl::Status& status, Reason reason) {
  if (RetryAfterOf(status)) return Retry::kLater;
  switch (reason) {
    case Reason::kQueueFull:
    case Reason::kOutOfMemory:
      return Retry::kLater;
    case Reason::kTooLarge:
      return Retry::kNever;
    default:
      return Retry::kNoHint;
  }
}

milliseconds RetryDelay(const absl::Status& status) {
  if (const auto hint = RetryAfterOf(status)) return *hint;
  return ReasonOf(status) == Reason::kOutOfMemory ? kOutOfMemoryRetry : kQueueFullRetry;
}

// The code on the wire. absl's codes are gRPC's. Codes outside the contract are our faults.
grpc::StatusCode WireCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return static_cast<grpc::StatusCode>(code);
    default:
      return grpc::StatusCode::INTERNAL;
  }
}

// Unique enough to find one line in a log, without information about the process.
std::string RandomId() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id(16, '0');
  uint64_t value = generator();
  for (char& digit : id) {
    digit = kDigits[value & 15];
    value >>= 4;
  }
  return id;
}

void AddRetryInfo(const absl::Status& status, google::rpc::Status* details) {
  const milliseconds delay = RetryDelay(status);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(delay.count() / 1000);
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay.count() % 1000) * 1'000'000);
  details->add_details()->PackFrom(retry);
}

void AddBadRequest(std::string_view field, const std::string& message,
                   google::rpc::Status* details) {
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field(Printable(field, kMaxFieldBytes));
  violation->set_description(message);
  details->add_details()->PackFrom(bad_request);
}

}  // namespace

google::rpc::Status ToDetails(const absl::Status& status, const RequestIds& ids) {
  const grpc::StatusCode code = WireCode(status.code());
  const Reason reason = code == grpc::StatusCode::INTERNAL ? Reason::kInternal : ReasonOf(status);
  std::string message =
      Printable({status.message().data(), status.message().size()}, kMaxMessageBytes);

  InArena<google::rpc::ErrorInfo> info;
  info->set_reason(std::string(castor::NameOf(reason)));
  info->set_domain(std::string(kErrorDomain));
  if (reason == Reason::kInternal) {
    const std::string error_id = RandomId();
    LogError("internal error", {{"error_id", error_id},
                                {"request_id", Printable(ids.request_id, kMaxRequestIdBytes)},
                                {"trace_id", LogValue::IfAny(ids.trace_id)},
                                {"span_id", LogValue::IfAny(ids.span_id)},
                                {"error", status.ToString()}});
    (*info->mutable_metadata())["error_id"] = error_id;
    message = "internal error " + error_id + "; the server's log has details under this id";
  }

  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  details.add_details()->PackFrom(*info);
  if (const auto field = FieldOf(status)) AddBadRequest(*field, message, &details);
  if (RetryOf(status, reason) == Retry::kLater) AddRetryInfo(status, &details);
  if (!ids.request_id.empty()) {
    google::rpc::RequestInfo request;
    request.set_request_id(Printable(ids.request_id, kMaxRequestIdBytes));
    details.add_details()->PackFrom(request);
  }
  return details;
}

grpc::Status ToGrpcStatus(const absl::Status& status, const RequestIds& ids) {
  if (status.ok()) return grpc::Status::OK;
  grpc::Status result;
  grpc::SetErrorDetails(ToDetails(status, ids), &result);
  return result;
}

std::optional<std::string> RetryPushback(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  switch (RetryOf(status, ReasonOf(status))) {
    case Retry::kNoHint:
      return std::nullopt;
    case Retry::kNever:
      return "-1";
    case Retry::kLater:
      return std::to_string(RetryDelay(status).count());
  }
  return std::nullopt;
}

grpc::Status RefuseCall(const absl::Status& status, const RequestIds& ids, Call* call) {
  if (const auto pushback = RetryPushback(status)) {
    call->AddTrailer("grpc-retry-pushback-ms", *pushback);
  }
  return ToGrpcStatus(status, ids);
}

bool IsServerError(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

std::string NameOf(grpc::StatusCode code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

std::string Printable(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kEllipsis = "...";
  const bool cut = text.size() > max_bytes;
  std::string result(cut ? text.substr(0, max_bytes - kEllipsis.size()) : text);
  for (char& c : result) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  if (cut) result += kEllipsis;
  return result;
}

}  // namespace castor::server
