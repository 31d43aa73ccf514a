#include "client/error.h"

#include <array>
#include <climits>
#include <cstdint>

#include "client/utf8.h"
#include "google/rpc/error_details.pb.h"

namespace castor::client {
namespace {

constexpr std::string_view kDomain = "castor";
constexpr int64_t kMaxSeconds = 315'576'000'000;  // the greatest protobuf Duration, 10,000 years

// nullopt if it is not a duration, or negative.
std::optional<std::chrono::milliseconds> ToMilliseconds(const google::protobuf::Duration& delay) {
  if (delay.seconds() < 0 || delay.seconds() > kMaxSeconds || delay.nanos() < 0 ||
      delay.nanos() > 999'999'999) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(delay.seconds() * 1000 + delay.nanos() / 1'000'000);
}

}  // namespace

std::string_view NameOf(grpc::StatusCode code) {
  static constexpr std::array<std::string_view, 17> kNames = {"OK",
                                                              "CANCELLED",
                                                              "UNKNOWN",
                                                              "INVALID_ARGUMENT",
                                                              "DEADLINE_EXCEEDED",
                                                              "NOT_FOUND",
                                                              "ALREADY_EXISTS",
                                                              "PERMISSION_DENIED",
                                                              "RESOURCE_EXHAUSTED",
                                                              "FAILED_PRECONDITION",
                                                              "ABORTED",
                                                              "OUT_OF_RANGE",
                                                              "UNIMPLEMENTED",
                                                              "INTERNAL",
                                                              "UNAVAILABLE",
                                                              "DATA_LOSS",
                                                              "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : "UNKNOWN";
}

std::string Error::ToString() const {
  std::string text(NameOf(code));
  if (!reason.empty() && reason != text) text += " (" + reason + ")";
  // The server's own messages begin with the field already.
  if (!field.empty() && !message.starts_with(field)) text += " at " + field;
  if (!message.empty()) text += ": " + message;
  if (attempts > 1) text += " (after " + std::to_string(attempts) + " attempts)";
  return CleanLine(text);
}

Error ParseError(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) details.Clear();
  details.set_code(status.error_code());
  details.set_message(status.error_message());
  return ParseError(details);
}

Error LocalError(const absl::Status& status) {
  Error error;
  error.code = static_cast<grpc::StatusCode>(status.code());  // both enums have the same numbers
  error.message = std::string(status.message());
  error.attempts = 0;
  return error;
}

std::optional<Error> CheckSize(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size <= INT_MAX) return std::nullopt;
  Error error;
  error.code = grpc::StatusCode::RESOURCE_EXHAUSTED;
  error.message =
      "the request has " + std::to_string(size) + " bytes; messages are limited to 2 GiB";
  return error;
}

Error ParseError(const google::rpc::Status& details) {
  Error error;
  error.code = static_cast<grpc::StatusCode>(details.code());
  error.message = details.message();
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    google::rpc::RequestInfo request;
    if (detail.UnpackTo(&info)) {
      // Ignore other domains: a proxy may send reasons of its own.
      if (info.domain() == kDomain) error.reason = info.reason();
    } else if (detail.UnpackTo(&bad_request)) {
      if (!bad_request.field_violations().empty()) {
        error.field = bad_request.field_violations(0).field();
      }
    } else if (detail.UnpackTo(&retry)) {
      error.retry_after = ToMilliseconds(retry.retry_delay());
    } else if (detail.UnpackTo(&request)) {
      error.request_id = request.request_id();
    }
  }
  return error;
}

}  // namespace castor::client
