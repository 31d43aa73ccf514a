#include "client/load/http2/status.h"

#include <nghttp2/nghttp2.h>

#include <charconv>

#include "absl/strings/escaping.h"

namespace castor::load {
namespace {

constexpr int kGreatestCode = 16;  // UNAUTHENTICATED

int Number(std::string_view text, int otherwise) {
  int number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return whole && number >= 0 ? number : otherwise;
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// What is no valid escape stands for itself, as gRPC has it.
std::string DecodePercents(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && Digit(text[i + 1]) >= 0 &&
        Digit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(Digit(text[i + 1]) * 16 + Digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// gRPC's table of HTTP statuses, for what answers instead of a gRPC server.
grpc::StatusCode CodeOfHttp(int status) {
  switch (status) {
    case 400:
      return grpc::StatusCode::INTERNAL;
    case 401:
      return grpc::StatusCode::UNAUTHENTICATED;
    case 403:
      return grpc::StatusCode::PERMISSION_DENIED;
    case 404:
      return grpc::StatusCode::UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
      return grpc::StatusCode::UNAVAILABLE;
    default:
      return grpc::StatusCode::UNKNOWN;
  }
}

// gRPC's table of HTTP/2's errors.
grpc::StatusCode CodeOfHttp2(uint32_t error) {
  switch (error) {
    case NGHTTP2_REFUSED_STREAM:
      return grpc::StatusCode::UNAVAILABLE;
    case NGHTTP2_CANCEL:
      return grpc::StatusCode::CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
      return grpc::StatusCode::PERMISSION_DENIED;
    default:
      return grpc::StatusCode::INTERNAL;
  }
}

}  // namespace

void EndFields::Clear() {
  http_status = 0;
  grpc_status = -1;
  message.clear();
  details.clear();
}

void EndFields::Take(std::string_view name, std::string_view value) {
  if (name == ":status") {
    http_status = Number(value, 0);
  } else if (name == "grpc-status") {
    grpc_status = Number(value, -1);
  } else if (name == "grpc-message") {
    message = value;
  } else if (name == "grpc-status-details-bin") {
    details = value;
  }
}

grpc::Status StatusOf(const EndFields& fields, uint32_t http2_error) {
  if (fields.grpc_status == 0 && http2_error == NGHTTP2_NO_ERROR) return grpc::Status::OK;
  if (fields.grpc_status > 0) {
    std::string details;
    if (!absl::Base64Unescape(fields.details, &details)) details.clear();
    const auto code = fields.grpc_status <= kGreatestCode
                          ? static_cast<grpc::StatusCode>(fields.grpc_status)
                          : grpc::StatusCode::UNKNOWN;
    return {code, DecodePercents(fields.message), details};
  }
  if (http2_error != NGHTTP2_NO_ERROR) {
    return {CodeOfHttp2(http2_error),
            std::string("the stream was reset: ") + nghttp2_http2_strerror(http2_error)};
  }
  if (fields.http_status != 0 && fields.http_status != 200) {
    return {CodeOfHttp(fields.http_status),
            "HTTP status " + std::to_string(fields.http_status) + " and no gRPC status"};
  }
  return {grpc::StatusCode::INTERNAL, "the answer ends without a gRPC status"};
}

}  // namespace castor::load
